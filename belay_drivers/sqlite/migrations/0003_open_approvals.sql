-- What people still have to decide, in the order in which it is listed; the moment is null together with the decision.
CREATE INDEX belay_approvals_open ON belay_approvals (asked_at, approval_id) WHERE decided_at IS NULL;
