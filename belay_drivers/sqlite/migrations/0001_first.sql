CREATE TABLE belay_migrations (
  migration_id INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE belay_store (
  source TEXT NOT NULL CHECK (length(source) = 32),
  interval_ms INTEGER NOT NULL CHECK (interval_ms > 0),
  stale_after_ms INTEGER NOT NULL CHECK (stale_after_ms > skew_ms + interval_ms),
  skew_ms INTEGER NOT NULL CHECK (skew_ms >= 0)
) STRICT;

INSERT INTO belay_store (source, interval_ms, stale_after_ms, skew_ms)
VALUES (lower(hex(randomblob(16))), 1000, 30000, 10000);

CREATE TABLE belay_runs (
  run_id TEXT NOT NULL PRIMARY KEY CHECK (length(run_id) > 0),
  status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'suspended', 'completed', 'failed', 'cancelled')),
  workflow TEXT,
  version TEXT,
  priority INTEGER NOT NULL DEFAULT 0,
  ready_at INTEGER CHECK (ready_at BETWEEN 0 AND 9007199254740991),
  created_at INTEGER NOT NULL CHECK (created_at BETWEEN 0 AND 9007199254740991),
  started_at INTEGER CHECK (started_at BETWEEN 0 AND 9007199254740991),
  finished_at INTEGER CHECK (finished_at BETWEEN 0 AND 9007199254740991),
  owner_host_id TEXT,
  owner_pid INTEGER,
  owner_nonce TEXT,
  heartbeat_at INTEGER CHECK (heartbeat_at BETWEEN 0 AND 9007199254740991),
  epoch INTEGER NOT NULL DEFAULT 0,
  write_seq INTEGER NOT NULL DEFAULT 0,
  last_nonce TEXT,
  takeovers INTEGER NOT NULL DEFAULT 0,
  claim_host_id TEXT,
  claim_pid INTEGER,
  claim_nonce TEXT,
  claimed_at INTEGER CHECK (claimed_at BETWEEN 0 AND 9007199254740991),
  parent_run_id TEXT REFERENCES belay_runs (run_id),
  lineage_id TEXT CHECK (length(lineage_id) > 0),
  round_ordinal INTEGER CHECK (round_ordinal BETWEEN 0 AND 9007199254740991),
  cancel_requested_at INTEGER CHECK (cancel_requested_at BETWEEN 0 AND 9007199254740991),
  cancel_acknowledgement TEXT,
  waiting_reason TEXT CHECK (length(waiting_reason) > 0),
  waiting_token TEXT CHECK (length(waiting_token) > 0),
  waiting_wake_at INTEGER CHECK (waiting_wake_at BETWEEN 0 AND 9007199254740991),
  idempotency_key TEXT UNIQUE,
  last_entry INTEGER NOT NULL DEFAULT 0,
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
) STRICT;

CREATE INDEX belay_runs_ready ON belay_runs (workflow, priority DESC, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX belay_runs_running ON belay_runs (run_id) WHERE status = 'running';
CREATE INDEX belay_runs_parent ON belay_runs (parent_run_id);
CREATE INDEX belay_runs_waiting ON belay_runs (waiting_wake_at) WHERE waiting_reason IS NOT NULL;

CREATE TABLE belay_run_values (
  run_id TEXT NOT NULL PRIMARY KEY REFERENCES belay_runs (run_id),
  full_id TEXT,
  full_lineage_id TEXT,
  state TEXT NOT NULL,
  input TEXT,
  result TEXT,
  error TEXT,
  waiting_request TEXT,
  trace TEXT,
  codec TEXT
) STRICT;

CREATE TABLE belay_attempts (
  run_id TEXT NOT NULL REFERENCES belay_runs (run_id),
  step_key_digest TEXT NOT NULL CHECK (length(step_key_digest) > 0),
  full_key TEXT,
  attempt INTEGER NOT NULL CHECK (attempt BETWEEN 0 AND 9007199254740991),
  step TEXT,
  kind TEXT,
  state TEXT NOT NULL CHECK (length(state) > 0),
  idempotent INTEGER CHECK (idempotent IN (0, 1)),
  input_digest TEXT,
  epoch INTEGER NOT NULL DEFAULT 0,
  recorded INTEGER,
  started_at INTEGER NOT NULL CHECK (started_at BETWEEN 0 AND 9007199254740991),
  finished_at INTEGER CHECK (finished_at BETWEEN 0 AND 9007199254740991),
  heartbeat_at INTEGER CHECK (heartbeat_at BETWEEN 0 AND 9007199254740991),
  checkpoint TEXT,
  error TEXT,
  outcome TEXT,
  meta TEXT NOT NULL,
  resolved_by TEXT,
  resolved_at INTEGER,
  PRIMARY KEY (run_id, step_key_digest, attempt)
) STRICT;

CREATE TABLE belay_approvals (
  run_id TEXT NOT NULL,
  step_key_digest TEXT NOT NULL,
  approval_id TEXT NOT NULL UNIQUE,
  gate TEXT NOT NULL,
  subject TEXT NOT NULL,
  subject_digest TEXT NOT NULL,
  asked_at INTEGER NOT NULL,
  lapse_at INTEGER,
  decision TEXT CHECK (decision IN ('approved', 'rejected', 'lapsed', 'withdrawn')),
  decided_by TEXT,
  decided_at INTEGER,
  reason TEXT,
  edited TEXT,
  edited_digest TEXT,
  rule_id TEXT,
  PRIMARY KEY (run_id, step_key_digest),
  CONSTRAINT belay_approvals_decided CHECK ((decision IS NULL) = (decided_at IS NULL))
) STRICT;

CREATE TABLE belay_journal (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id TEXT NOT NULL,
  entry INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  facts TEXT NOT NULL,
  UNIQUE (run_id, entry)
) STRICT;
