-- What people still have to decide, in the order in which it is listed. That it is open is said by the moment, which is
-- null together with the decision: statements about one run say it by the decision. Otherwise the planner would look
-- for that run among all that is open, which seems the shortest way while nothing is, and its plans are kept.
CREATE INDEX belay_approvals_open ON belay_approvals (asked_at, approval_id) WHERE decided_at IS NULL;
