-- Listing runs by the moment of their creation, in either direction.
CREATE INDEX belay_runs_created ON belay_runs (created_at, run_id);

-- Waiting runs in the order in which they are told, those that wait for one thing, and the few that were asked to stop.
DROP INDEX belay_runs_waiting;
CREATE INDEX belay_runs_waiting ON belay_runs (waiting_wake_at, run_id) WHERE waiting_reason IS NOT NULL;
CREATE INDEX belay_runs_waiting_reason ON belay_runs (waiting_reason, waiting_wake_at, run_id)
  WHERE waiting_reason IS NOT NULL;
CREATE INDEX belay_runs_waiting_cancelled ON belay_runs (cancel_requested_at, run_id)
  WHERE waiting_reason IS NOT NULL AND cancel_requested_at IS NOT NULL;
