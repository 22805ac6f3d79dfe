CREATE TABLE belay_migrations (
  migration_id BIGINT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  applied_at BIGINT NOT NULL
);

CREATE TABLE belay_store (
  source TEXT NOT NULL CHECK (length(source) = 32),
  interval_ms BIGINT NOT NULL CHECK (interval_ms > 0),
  stale_after_ms BIGINT NOT NULL CHECK (stale_after_ms > skew_ms + interval_ms),
  skew_ms BIGINT NOT NULL CHECK (skew_ms >= 0)
);

INSERT INTO belay_store (source, interval_ms, stale_after_ms, skew_ms)
VALUES (replace(gen_random_uuid()::text, '-', ''), 1000, 30000, 10000);

CREATE TABLE belay_runs (
  run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (length(run_id) > 0),
  status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'suspended', 'completed', 'failed', 'cancelled')),
  workflow TEXT,
  version TEXT,
  priority INTEGER NOT NULL DEFAULT 0,
  ready_at BIGINT CHECK (ready_at BETWEEN 0 AND 9007199254740991),
  created_at BIGINT NOT NULL CHECK (created_at BETWEEN 0 AND 9007199254740991),
  started_at BIGINT CHECK (started_at BETWEEN 0 AND 9007199254740991),
  finished_at BIGINT CHECK (finished_at BETWEEN 0 AND 9007199254740991),
  owner_host_id TEXT,
  owner_pid BIGINT,
  owner_nonce TEXT,
  heartbeat_at BIGINT CHECK (heartbeat_at BETWEEN 0 AND 9007199254740991),
  epoch BIGINT NOT NULL DEFAULT 0,
  write_seq BIGINT NOT NULL DEFAULT 0,
  last_nonce TEXT,
  takeovers INTEGER NOT NULL DEFAULT 0,
  claim_host_id TEXT,
  claim_pid BIGINT,
  claim_nonce TEXT,
  claimed_at BIGINT CHECK (claimed_at BETWEEN 0 AND 9007199254740991),
  parent_run_id TEXT COLLATE "C" REFERENCES belay_runs (run_id),
  lineage_id TEXT COLLATE "C" CHECK (length(lineage_id) > 0),
  round_ordinal BIGINT CHECK (round_ordinal BETWEEN 0 AND 9007199254740991),
  cancel_requested_at BIGINT CHECK (cancel_requested_at BETWEEN 0 AND 9007199254740991),
  cancel_acknowledgement TEXT,
  waiting_reason TEXT CHECK (length(waiting_reason) > 0),
  waiting_token TEXT CHECK (length(waiting_token) > 0),
  waiting_wake_at BIGINT CHECK (waiting_wake_at BETWEEN 0 AND 9007199254740991),
  idempotency_key TEXT UNIQUE,
  last_entry BIGINT NOT NULL DEFAULT 0,
  UNIQUE (lineage_id, round_ordinal),
  CONSTRAINT belay_runs_owner CHECK (
    (status = 'running' AND length(owner_host_id) > 0 AND owner_host_id IS NOT NULL AND owner_pid >= 0
      AND owner_pid IS NOT NULL AND length(owner_nonce) > 0 AND owner_nonce IS NOT NULL AND heartbeat_at IS NOT NULL)
    OR (status <> 'running' AND owner_host_id IS NULL AND owner_pid IS NULL AND owner_nonce IS NULL
      AND heartbeat_at IS NULL)
  ),
  CONSTRAINT belay_runs_claim CHECK (
    (claim_host_id IS NULL AND claim_pid IS NULL AND claim_nonce IS NULL AND claimed_at IS NULL)
    OR (length(claim_host_id) > 0 AND claim_host_id IS NOT NULL AND claim_pid >= 0 AND claim_pid IS NOT NULL
      AND length(claim_nonce) > 0 AND claim_nonce IS NOT NULL AND claimed_at IS NOT NULL)
  ),
  CONSTRAINT belay_runs_waiting CHECK (
    waiting_reason IS NOT NULL OR (waiting_token IS NULL AND waiting_wake_at IS NULL)
  )
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX belay_runs_ready ON belay_runs (workflow, priority DESC, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX belay_runs_running ON belay_runs (run_id) WHERE status = 'running';
CREATE INDEX belay_runs_parent ON belay_runs (parent_run_id);
CREATE INDEX belay_runs_waiting ON belay_runs (waiting_wake_at) WHERE waiting_reason IS NOT NULL;

CREATE TABLE belay_run_values (
  run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES belay_runs (run_id),
  full_id TEXT,
  full_lineage_id TEXT,
  state TEXT NOT NULL,
  input TEXT,
  result TEXT,
  error TEXT,
  waiting_request TEXT,
  trace TEXT,
  codec TEXT
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE belay_attempts (
  run_id TEXT COLLATE "C" NOT NULL REFERENCES belay_runs (run_id),
  step_key_digest TEXT COLLATE "C" NOT NULL CHECK (length(step_key_digest) > 0),
  full_key TEXT,
  attempt BIGINT NOT NULL CHECK (attempt BETWEEN 0 AND 9007199254740991),
  step TEXT,
  kind TEXT,
  state TEXT NOT NULL CHECK (length(state) > 0),
  idempotent INTEGER CHECK (idempotent IN (0, 1)),
  input_digest TEXT,
  epoch BIGINT NOT NULL DEFAULT 0,
  recorded BIGINT,
  started_at BIGINT NOT NULL CHECK (started_at BETWEEN 0 AND 9007199254740991),
  finished_at BIGINT CHECK (finished_at BETWEEN 0 AND 9007199254740991),
  heartbeat_at BIGINT CHECK (heartbeat_at BETWEEN 0 AND 9007199254740991),
  checkpoint TEXT,
  error TEXT,
  outcome TEXT,
  meta TEXT NOT NULL,
  resolved_by TEXT,
  resolved_at BIGINT,
  PRIMARY KEY (run_id, step_key_digest, attempt)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE belay_approvals (
  run_id TEXT COLLATE "C" NOT NULL,
  step_key_digest TEXT COLLATE "C" NOT NULL,
  approval_id TEXT NOT NULL UNIQUE,
  gate TEXT NOT NULL,
  subject TEXT NOT NULL,
  subject_digest TEXT NOT NULL,
  asked_at BIGINT NOT NULL,
  lapse_at BIGINT,
  decision TEXT CHECK (decision IN ('approved', 'rejected', 'lapsed', 'withdrawn')),
  decided_by TEXT,
  decided_at BIGINT,
  reason TEXT,
  edited TEXT,
  edited_digest TEXT,
  rule_id TEXT,
  PRIMARY KEY (run_id, step_key_digest),
  CONSTRAINT belay_approvals_decided CHECK ((decision IS NULL) = (decided_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE belay_journal (
  run_id TEXT COLLATE "C" NOT NULL,
  entry BIGINT NOT NULL,
  at BIGINT NOT NULL,
  kind TEXT NOT NULL,
  facts TEXT NOT NULL,
  xid XID8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (run_id, entry)
);

CREATE INDEX belay_journal_feed ON belay_journal (xid, run_id, entry);
