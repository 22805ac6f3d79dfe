-- The server reads a CHECK constraint anew for every statement that writes to its table, which was half of what the
-- record of one step cost it. The rules stay. Those of columns that a record changes are one short CHECK for each
-- table; those of all other columns of a run are looked at by a trigger, which a record does not set off.
-- What is stored has kept the rules until now: it is not read again (NOT VALID), which would hold up everybody.
ALTER TABLE belay_runs
  DROP CONSTRAINT belay_runs_run_id_check,
  DROP CONSTRAINT belay_runs_status_check,
  DROP CONSTRAINT belay_runs_ready_at_check,
  DROP CONSTRAINT belay_runs_created_at_check,
  DROP CONSTRAINT belay_runs_started_at_check,
  DROP CONSTRAINT belay_runs_finished_at_check,
  DROP CONSTRAINT belay_runs_heartbeat_at_check,
  DROP CONSTRAINT belay_runs_claimed_at_check,
  DROP CONSTRAINT belay_runs_lineage_id_check,
  DROP CONSTRAINT belay_runs_round_ordinal_check,
  DROP CONSTRAINT belay_runs_cancel_requested_at_check,
  DROP CONSTRAINT belay_runs_waiting_reason_check,
  DROP CONSTRAINT belay_runs_waiting_token_check,
  DROP CONSTRAINT belay_runs_waiting_wake_at_check,
  DROP CONSTRAINT belay_runs_owner,
  DROP CONSTRAINT belay_runs_claim,
  DROP CONSTRAINT belay_runs_waiting,
  ADD CONSTRAINT belay_runs_heartbeat CHECK (
    CASE WHEN status = 'running' THEN coalesce(heartbeat_at, -1) BETWEEN 0 AND 9007199254740991
    ELSE heartbeat_at IS NULL END
  ) NOT VALID;

CREATE OR REPLACE FUNCTION belay_runs_sound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- As with a CHECK, what is neither true nor false is no breach: most of these columns may be null.
  IF NOT (
    NEW.run_id <> ''
    AND NEW.status IN ('pending', 'running', 'suspended', 'completed', 'failed', 'cancelled')
    AND num_nulls(NEW.owner_host_id, NEW.owner_pid, NEW.owner_nonce)
      = CASE WHEN NEW.status = 'running' THEN 0 ELSE 3 END
    AND num_nulls(NEW.claim_host_id, NEW.claim_pid, NEW.claim_nonce, NEW.claimed_at) IN (0, 4)
    AND '' <> ALL (ARRAY[
      NEW.owner_host_id, NEW.owner_nonce, NEW.claim_host_id, NEW.claim_nonce,
      NEW.lineage_id, NEW.waiting_reason, NEW.waiting_token
    ])
    AND (NEW.waiting_reason IS NOT NULL OR num_nonnulls(NEW.waiting_token, NEW.waiting_wake_at) = 0)
    AND least(
      NEW.owner_pid, NEW.claim_pid, NEW.ready_at, NEW.created_at, NEW.started_at, NEW.finished_at, NEW.claimed_at,
      NEW.round_ordinal, NEW.cancel_requested_at, NEW.waiting_wake_at
    ) >= 0
    AND greatest(
      NEW.ready_at, NEW.created_at, NEW.started_at, NEW.finished_at, NEW.claimed_at,
      NEW.round_ordinal, NEW.cancel_requested_at, NEW.waiting_wake_at
    ) <= 9007199254740991
  ) THEN
    RAISE check_violation USING
      MESSAGE = 'a run breaks a rule of its table', CONSTRAINT = 'belay_runs_sound', TABLE = 'belay_runs';
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER belay_runs_sound AFTER INSERT OR UPDATE OF
  run_id, status, ready_at, created_at, started_at, finished_at, owner_host_id, owner_pid, owner_nonce,
  claim_host_id, claim_pid, claim_nonce, claimed_at, lineage_id, round_ordinal, cancel_requested_at,
  waiting_reason, waiting_token, waiting_wake_at
  ON belay_runs FOR EACH ROW EXECUTE FUNCTION belay_runs_sound();

ALTER TABLE belay_attempts
  DROP CONSTRAINT belay_attempts_attempt_check,
  DROP CONSTRAINT belay_attempts_finished_at_check,
  DROP CONSTRAINT belay_attempts_heartbeat_at_check,
  DROP CONSTRAINT belay_attempts_idempotent_check,
  DROP CONSTRAINT belay_attempts_started_at_check,
  DROP CONSTRAINT belay_attempts_state_check,
  DROP CONSTRAINT belay_attempts_step_key_digest_check,
  ADD CONSTRAINT belay_attempts_sound CHECK (
    least(attempt, started_at, finished_at, heartbeat_at, idempotent) >= 0
    AND greatest(attempt, started_at, finished_at, heartbeat_at) <= 9007199254740991
    AND idempotent <= 1
    AND step_key_digest <> '' AND state <> ''
  ) NOT VALID;
