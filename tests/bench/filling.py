"""Scripts that put very many runs into a PostgreSQL database, as they would stand there after a while."""

_TEXT = "x" * 90
_VERSION = "0" * 64
# Older than any id made today. Foreign keys hold by the way the rows are made, and are not looked at one by one.
_IDS = "'01900000-0000-7000-8000-' || lpad(to_hex(g), 12, '0')"
_SERIES = "FROM generate_series(1, {number}) g"
_AT = "1700000000000 + g"
_QUIET = "SET session_replication_role = replica; SET synchronous_commit = off;"
_KEPT_SO = """
ALTER TABLE belay_runs SET (autovacuum_enabled = off);
ALTER TABLE belay_run_values SET (autovacuum_enabled = off);
ALTER TABLE belay_attempts SET (autovacuum_enabled = off);
ALTER TABLE belay_journal SET (autovacuum_enabled = off);
"""


def finished(number: int) -> str:
    """So many completed runs of one step, with their values, attempts and journal."""
    series = _SERIES.format(number=number)
    return f"""{_QUIET}
INSERT INTO belay_runs (run_id, status, workflow, version, created_at, started_at, finished_at, epoch, write_seq,
  last_entry)
SELECT {_IDS}, 'completed', 'bench-kept', '{_VERSION}', {_AT}, {_AT} + 1, {_AT} + 2, 1, 2, 3 {series};
INSERT INTO belay_run_values (run_id, state, input, result) SELECT {_IDS}, '{{}}', '1', '"{_TEXT}"' {series};
INSERT INTO belay_attempts (run_id, step_key_digest, full_key, attempt, step, kind, state, idempotent, epoch, recorded,
  started_at, finished_at, outcome, meta)
SELECT {_IDS}, encode(sha256('kept#1'), 'hex'), 'kept#1', 1, 'kept', 'step', 'succeeded', 1, 1, 1, {_AT}, {_AT} + 1,
  '"{_TEXT}"', '{{}}' {series};
INSERT INTO belay_journal (run_id, entry, at, kind, facts)
SELECT {_IDS}, e, {_AT} + e, (ARRAY['created', 'noted', 'settled'])[e], '{{"of":"{_TEXT}"}}'
{series} CROSS JOIN generate_series(1, 3) e;
{_KEPT_SO}"""


def pending(number: int) -> str:
    """So many runs that wait to be taken, of the workflow whose runs are claimed."""
    series = _SERIES.format(number=number)
    return f"""{_QUIET}
INSERT INTO belay_runs (run_id, status, workflow, version, created_at, ready_at, last_entry)
SELECT {_IDS}, 'pending', 'bench-endless', '{_VERSION}', {_AT}, {_AT}, 1 {series};
INSERT INTO belay_run_values (run_id, state, input) SELECT {_IDS}, '{{}}', '1' {series};
INSERT INTO belay_journal (run_id, entry, at, kind, facts) SELECT {_IDS}, 1, {_AT}, 'created', '{{}}' {series};
{_KEPT_SO}"""
