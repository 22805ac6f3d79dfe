"""The parts of a statement that does many writes (kernel 3 and 5): a part for each kind of write.

Rows of runs are locked in the order of their keys, each looked up by itself so that no plan scans them all, and fenced
by every part of the lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from belay_drivers.postgres.columns import NUMBER, TEXT
from belay_drivers.sql.statements.run_rows import REPLACED
from belay_drivers.sql.statements.write_ops import ASKED, ATTEMPT_COLUMNS, BEGUN, LET_GO, OPEN_STATES

_LEASE: Final = {
    "run_id": TEXT,
    "host_id": TEXT,
    "pid": NUMBER,
    "nonce": TEXT,
    "epoch": NUMBER,
    "seq": NUMBER,
    "now_ms": NUMBER,
}
_NUMBERS: Final = frozenset({"attempt", "idempotent", "recorded", "started_at", "finished_at"})
_ATTEMPT: Final = {name: NUMBER if name in _NUMBERS else TEXT for name in ATTEMPT_COLUMNS}
_ONE_EACH: Final = {**_LEASE, **_ATTEMPT}
_GIVEN: Final = {"of_place": NUMBER, **_ATTEMPT}
_OPENS: Final = {
    **_ONE_EACH,
    **{name: NUMBER if name in {"asked_at", "lapse_at"} else TEXT for name in ASKED},
    "facts": TEXT,
}
_PARKS: Final = {
    **_LEASE,
    "reason": TEXT,
    "token": TEXT,
    "wake_at": NUMBER,
    "request": TEXT,
    "ready": NUMBER,
    "seen": NUMBER,
    "facts": TEXT,
}
_ENDS: Final = {**_LEASE, "status": TEXT, "result": TEXT, "error": TEXT, "seen": NUMBER, "facts": TEXT}
_NEWS: Final = {name: NUMBER if name in {"priority", "ready_at", "created_at"} else TEXT for name in BEGUN}
_FENCED: Final = """r.run_id = a.run_id AND r.status = 'running' AND r.owner_host_id = a.host_id
      AND r.owner_pid = a.pid AND r.owner_nonce = a.nonce AND r.epoch = a.epoch AND r.write_seq = a.seq"""
_REPLACING: Final = f"""ON CONFLICT (run_id, step_key_digest, attempt)
    DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in REPLACED)} WHERE kept.state IN ({OPEN_STATES})"""
_ALONE: Final = ", ".join(f"${number}::{kind}" for number, kind in enumerate(_ATTEMPT.values(), len(_LEASE) + 1))

# What a record does to the row of its run.
_MARKED: Final = "write_seq = r.write_seq + 1, heartbeat_at = greatest(r.heartbeat_at, l.now_ms), takeovers = 0"
_COLUMNS: Final = ", ".join(ATTEMPT_COLUMNS)

# Of most runs one attempt is recorded: its values travel with the lease, so that nothing is joined to find them again.
_SINGLES: Final = f"""one AS (
  SELECT * FROM unnest({{one}}) WITH ORDINALITY AS t ({", ".join(_ONE_EACH)}, place) ORDER BY run_id COLLATE "C"
), one_locked AS MATERIALIZED (
  SELECT a.* FROM one a CROSS JOIN LATERAL (SELECT FROM belay_runs r WHERE {_FENCED} FOR NO KEY UPDATE) t
), one_held AS (
  UPDATE belay_runs r SET {_MARKED} FROM one_locked l WHERE r.run_id = l.run_id
  RETURNING l.*, r.ready_at, r.cancel_requested_at
), one_stored AS (
  INSERT INTO belay_attempts AS kept (run_id, epoch, {_COLUMNS})
  SELECT run_id, epoch, {_COLUMNS} FROM one_held {_REPLACING} RETURNING 1
)"""
_SINGLE: Final = """SELECT 0 AS kind, place, run_id, ready_at, cancel_requested_at,
  (SELECT count(*) FROM one_stored) AS stored FROM one_held"""

# Attempts of a run are written by its owner alone, and each such write moves the sequence on: what the statement sees
# of them when it begins is what there is when the fence holds.
_RECORDS: Final = f"""asked AS (
  SELECT * FROM unnest({{asked}}) WITH ORDINALITY AS t ({", ".join(_LEASE)}, place) ORDER BY run_id COLLATE "C"
), given AS MATERIALIZED (
  SELECT * FROM unnest({{given}}) AS t ({", ".join(_GIVEN)})
), blocked AS MATERIALIZED (
  SELECT a.place FROM asked a JOIN given g ON g.of_place = a.place
    JOIN belay_attempts k ON k.run_id = a.run_id AND k.step_key_digest = g.step_key_digest AND k.attempt = g.attempt
  WHERE k.state NOT IN ({OPEN_STATES})
), locked AS MATERIALIZED (
  SELECT a.* FROM asked a CROSS JOIN LATERAL (SELECT FROM belay_runs r WHERE {_FENCED} FOR NO KEY UPDATE) t
), held AS (
  UPDATE belay_runs r SET {_MARKED}
  FROM locked l WHERE r.run_id = l.run_id AND l.place NOT IN (SELECT place FROM blocked)
  RETURNING l.place, r.run_id, r.epoch, r.ready_at, r.cancel_requested_at
), stored AS (
  INSERT INTO belay_attempts AS kept (run_id, epoch, {_COLUMNS})
  SELECT h.run_id, h.epoch, {", ".join(f"g.{name}" for name in ATTEMPT_COLUMNS)}
  FROM held h JOIN given g ON g.of_place = h.place {_REPLACING} RETURNING 1
)"""
_RECORDED: Final = """SELECT 1 AS kind, place, run_id, ready_at, cancel_requested_at,
  (SELECT count(*) FROM stored) AS stored FROM held"""

# Of a single run, the update that fences it locks it as well.
LONE: Final = f"""WITH held AS (
  UPDATE belay_runs SET write_seq = write_seq + 1, heartbeat_at = greatest(heartbeat_at, $7::bigint), takeovers = 0
  WHERE run_id = $1::text AND status = 'running' AND owner_host_id = $2::text AND owner_pid = $3::bigint
    AND owner_nonce = $4::text AND epoch = $5::bigint AND write_seq = $6::bigint
  RETURNING run_id, epoch, ready_at, cancel_requested_at
), stored AS (
  INSERT INTO belay_attempts AS kept (run_id, epoch, {_COLUMNS})
  SELECT run_id, epoch, {_ALONE} FROM held {_REPLACING} RETURNING 1
)
SELECT ready_at, cancel_requested_at, (SELECT count(*) FROM stored) AS stored FROM held"""
"""The record of one attempt of one run."""

# A wait that another attempt stands in the way of is begun in steps, which compare the two.
_OPENINGS: Final = f"""opens AS (
  SELECT * FROM unnest({{opens}}) WITH ORDINALITY AS t ({", ".join(_OPENS)}, place) ORDER BY run_id COLLATE "C"
), opening AS MATERIALIZED (
  SELECT a.* FROM opens a CROSS JOIN LATERAL (
    SELECT FROM belay_runs r WHERE {_FENCED} AND NOT EXISTS (
      SELECT FROM belay_attempts k
      WHERE k.run_id = a.run_id AND k.step_key_digest = a.step_key_digest AND k.attempt = a.attempt)
    FOR NO KEY UPDATE OF r
  ) t
), opened AS (
  UPDATE belay_runs r SET write_seq = r.write_seq + 1, heartbeat_at = greatest(r.heartbeat_at, o.now_ms),
    last_entry = r.last_entry + CASE WHEN o.approval_id IS NULL THEN 0 ELSE 1 END
  FROM opening o WHERE r.run_id = o.run_id
  RETURNING o.*, r.last_entry
), waits AS (
  INSERT INTO belay_attempts (run_id, epoch, {_COLUMNS})
  SELECT run_id, epoch, {_COLUMNS} FROM opened
), questions AS (
  INSERT INTO belay_approvals (run_id, step_key_digest, {", ".join(ASKED)})
  SELECT run_id, step_key_digest, {", ".join(ASKED)} FROM opened WHERE approval_id IS NOT NULL
), asked_notes AS (
  INSERT INTO belay_journal (run_id, entry, at, kind, facts)
  SELECT run_id, last_entry, now_ms, 'asked', facts FROM opened WHERE approval_id IS NOT NULL
)"""
_OPENED: Final = "SELECT 2 AS kind, place, run_id, NULL::bigint, NULL::bigint, NULL::bigint FROM opened"

# Where the owner names no moment to be ready at, a mark it has not read keeps the run from being let go.
_PARKINGS: Final = f"""parks AS (
  SELECT * FROM unnest({{parks}}) WITH ORDINALITY AS t ({", ".join(_PARKS)}, place) ORDER BY run_id COLLATE "C"
), parking AS MATERIALIZED (
  SELECT a.* FROM parks a CROSS JOIN LATERAL (
    SELECT FROM belay_runs r WHERE {_FENCED}
      AND (a.ready IS NOT NULL OR r.ready_at IS NULL OR r.ready_at = a.seen)
    FOR NO KEY UPDATE
  ) t
), parked AS (
  UPDATE belay_runs r SET
    status = 'suspended', {LET_GO},
    waiting_reason = p.reason, waiting_token = p.token, waiting_wake_at = p.wake_at,
    ready_at = CASE WHEN p.ready IS NOT NULL THEN least(r.ready_at, p.ready) END,
    write_seq = r.write_seq + 1, last_entry = r.last_entry + 1
  FROM parking p WHERE r.run_id = p.run_id
  RETURNING p.place, r.run_id, r.last_entry, p.now_ms, p.request, p.facts
), requests AS (
  UPDATE belay_run_values v SET waiting_request = p.request FROM parked p WHERE v.run_id = p.run_id
), suspended AS (
  INSERT INTO belay_journal (run_id, entry, at, kind, facts)
  SELECT run_id, last_entry, now_ms, 'suspended', facts FROM parked
)"""
_PARKED: Final = "SELECT 3 AS kind, place, run_id, NULL::bigint, NULL::bigint, NULL::bigint FROM parked"

# A run with an open question is ended in steps, which withdraw it.
_ENDINGS: Final = f"""ends AS (
  SELECT * FROM unnest({{ends}}) WITH ORDINALITY AS t ({", ".join(_ENDS)}, place) ORDER BY run_id COLLATE "C"
), ending AS MATERIALIZED (
  SELECT a.* FROM ends a CROSS JOIN LATERAL (
    SELECT FROM belay_runs r WHERE {_FENCED}
      AND (r.ready_at IS NULL OR r.ready_at IS NOT DISTINCT FROM a.seen)
      AND (a.status = 'cancelled' OR r.cancel_requested_at IS NULL)
    FOR NO KEY UPDATE
  ) t
  WHERE NOT EXISTS (SELECT FROM belay_approvals p WHERE p.run_id = a.run_id AND p.decision IS NULL)
), ended AS (
  UPDATE belay_runs r SET
    status = e.status, {LET_GO},
    waiting_reason = NULL, waiting_token = NULL, waiting_wake_at = NULL, ready_at = NULL,
    finished_at = e.now_ms, write_seq = r.write_seq + 1, last_entry = r.last_entry + 1
  FROM ending e WHERE r.run_id = e.run_id
  RETURNING e.place, r.run_id, r.last_entry, e.now_ms, e.result, e.error, e.facts
), results AS (
  UPDATE belay_run_values v SET result = e.result, error = e.error FROM ended e WHERE v.run_id = e.run_id
), settled AS (
  INSERT INTO belay_journal (run_id, entry, at, kind, facts)
  SELECT run_id, last_entry, now_ms, 'settled', facts FROM ended
)"""
_ENDED: Final = "SELECT 4 AS kind, place, run_id, NULL::bigint, NULL::bigint, NULL::bigint FROM ended"

# A run whose id a deleted one had goes on counting the entries of that one: it is begun in steps.
_BEGINNINGS: Final = f"""news AS MATERIALIZED (
  SELECT * FROM unnest({{news}}) AS t ({", ".join(_NEWS)})
), begun AS (
  INSERT INTO belay_runs
    (run_id, status, workflow, version, priority, ready_at, created_at, idempotency_key, last_entry)
  SELECT run_id, 'pending', workflow, version, priority, ready_at, created_at, idempotency_key, 1
  FROM news WHERE NOT EXISTS (SELECT FROM belay_journal j WHERE j.run_id = news.run_id)
  ORDER BY run_id COLLATE "C"
  ON CONFLICT DO NOTHING RETURNING run_id
), inputs AS (
  INSERT INTO belay_run_values (run_id, full_id, state, input, trace)
  SELECT n.run_id, n.full_id, '{{{{}}}}', n.input, n.trace FROM begun b JOIN news n ON n.run_id = b.run_id
), created AS (
  INSERT INTO belay_journal (run_id, entry, at, kind, facts)
  SELECT n.run_id, 1, n.created_at, 'created', n.facts FROM begun b JOIN news n ON n.run_id = b.run_id
)"""
_BEGUN: Final = "SELECT 5 AS kind, NULL::bigint, run_id, NULL::bigint, NULL::bigint, NULL::bigint FROM begun"


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of write: its queries, the rows that answer for it, and the columns it is given, by name.

    An answer has these columns: the part's place in ``PARTS``, the write's place among its kind from 1 (None: the run
    tells which it is), the run, its two marks, and how many attempts the part has stored, None where that says nothing.
    """

    body: str
    answer: str
    given: Mapping[str, Mapping[str, str]]
    """The names and kinds of each table's columns."""


PARTS: Final = (
    Part(_SINGLES, _SINGLE, {"one": _ONE_EACH}),
    Part(_RECORDS, _RECORDED, {"asked": _LEASE, "given": _GIVEN}),
    Part(_OPENINGS, _OPENED, {"opens": _OPENS}),
    Part(_PARKINGS, _PARKED, {"parks": _PARKS}),
    Part(_ENDINGS, _ENDED, {"ends": _ENDS}),
    Part(_BEGINNINGS, _BEGUN, {"news": _NEWS}),
)
"""Records of one attempt and of several, waits that begin, runs that are parked, ended and begun."""
