"""Many writes in one transaction (kernel 3 and 5).

A statement costs SQLite a few microseconds and the commit a hundred times that, so each write is a statement or two
of its own: sets that travel as JSON were measured ten times slower (decision 0017). They go to the driver's cursor
itself, with which SQLAlchemy's work on a statement would cost more than the statement.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from belay_core.clock import Millis
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.run_rows import REPLACED
from belay_drivers.sql.statements.write_ops import (
    ASKED,
    ATTEMPT_COLUMNS,
    BEGUN,
    LET_GO,
    OPEN_STATES,
    Applied,
    ParkOp,
    RecordOp,
    SettleOp,
    StartOp,
    WaitOp,
    WriteOp,
    attempt_row,
    lease_row,
)

_WRITTEN: Final = ("run_id", "epoch", *ATTEMPT_COLUMNS)
_FENCED: Final = """run_id = ? AND status = 'running' AND owner_host_id = ? AND owner_pid = ? AND owner_nonce = ?
  AND epoch = ? AND write_seq = ?"""
_HOLD: Final = f"""UPDATE belay_runs SET write_seq = write_seq + 1, heartbeat_at = max(heartbeat_at, ?), takeovers = 0
WHERE {_FENCED}"""
# Tried first, since hardly a run has marks, and an update that answers with columns takes twice as long.
_HOLD_UNMARKED: Final = f"{_HOLD} AND ready_at IS NULL AND cancel_requested_at IS NULL"
_HOLD_MARKED: Final = f"{_HOLD} RETURNING ready_at, cancel_requested_at"
_STORE: Final = f"""INSERT INTO belay_attempts ({", ".join(_WRITTEN)}) VALUES ({", ".join("?" for _ in _WRITTEN)})
ON CONFLICT (run_id, step_key_digest, attempt)
  DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in REPLACED)} WHERE state IN ({OPEN_STATES})"""
_OPEN: Final = f"""UPDATE belay_runs SET
  write_seq = write_seq + 1, heartbeat_at = max(heartbeat_at, ?), last_entry = last_entry + ?
WHERE {_FENCED} AND NOT EXISTS (
    SELECT 1 FROM belay_attempts a WHERE a.run_id = belay_runs.run_id AND a.step_key_digest = ? AND a.attempt = ?)
RETURNING last_entry"""
_ASK: Final = f"""INSERT INTO belay_approvals (run_id, step_key_digest, {", ".join(ASKED)})
VALUES (?, ?, {", ".join("?" for _ in ASKED)})"""
# The earlier of two moments, and none where the owner names none: here min() of anything and NULL is NULL.
_PARK: Final = f"""UPDATE belay_runs SET
  status = 'suspended', {LET_GO}, waiting_reason = ?, waiting_token = ?, waiting_wake_at = ?,
  ready_at = min(coalesce(ready_at, ?), ?), write_seq = write_seq + 1, last_entry = last_entry + 1
WHERE {_FENCED} AND (? OR ready_at IS NULL OR ready_at IS ?)
RETURNING last_entry"""
_REQUEST: Final = "UPDATE belay_run_values SET waiting_request = ? WHERE run_id = ?"
_END: Final = f"""UPDATE belay_runs SET
  status = ?, {LET_GO},
  waiting_reason = NULL, waiting_token = NULL, waiting_wake_at = NULL, ready_at = NULL,
  finished_at = ?, write_seq = write_seq + 1, last_entry = last_entry + 1
WHERE {_FENCED} AND (ready_at IS NULL OR ready_at IS ?) AND (? OR cancel_requested_at IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM belay_approvals WHERE belay_approvals.run_id = belay_runs.run_id AND decision IS NULL)
RETURNING last_entry"""
_RESULT: Final = "UPDATE belay_run_values SET result = ?, error = ? WHERE run_id = ?"
NOTE: Final = "INSERT INTO belay_journal (run_id, entry, at, kind, facts) VALUES (?, ?, ?, ?, ?)"
"""An entry of a run that this transaction has changed."""
_BEGIN: Final = """INSERT INTO belay_runs
  (run_id, status, workflow, version, priority, ready_at, created_at, idempotency_key, last_entry)
SELECT ?1, 'pending', ?2, ?3, ?4, ?5, ?6, ?7, 1 WHERE NOT EXISTS (SELECT 1 FROM belay_journal WHERE run_id = ?1)
ON CONFLICT DO NOTHING"""
_INPUT: Final = "INSERT INTO belay_run_values (run_id, full_id, state, input, trace) VALUES (?, ?, '{}', ?, ?)"


def done_together(works: Sequence[WriteOp], cursor: Any) -> Sequence[Applied | None]:
    """Do writes in the transaction that is open: an answer for each, in their order."""
    return list(map(partial(done, cursor), works))


def done(cursor: Any, work: WriteOp) -> Applied | None:
    """Do a write in the transaction that is open, if it can be done plainly; its answer.

    None stands for one of which nothing is stored: a single write will tell.
    """
    match work:
        case RecordOp():
            return _recorded(cursor, work)
        case WaitOp():
            return _opened(cursor, work)
        case ParkOp():
            return _parked(cursor, work)
        case SettleOp():
            return _ended(cursor, work)
        case StartOp():
            return _begun(cursor, work)


def _recorded(cursor: Any, work: RecordOp) -> Applied | None:
    several = work.rows > 1
    if several:
        cursor.execute("SAVEPOINT several")
    row = lease_row(work.fence)
    marks = _marks_of_held(cursor, work.fence.now_ms, row)
    if marks is not None:
        stored = 0
        for each in work.attempts:
            stored += cursor.execute(_STORE, (row[0], row[4], *attempt_row(each))).rowcount
        if stored < work.rows and not several:
            return Applied(ambiguous=True)
        if stored < work.rows:
            cursor.execute("ROLLBACK TO several")
            marks = None
    if several:
        cursor.execute("RELEASE several")
    return None if marks is None else Applied(*marks)


def _marks_of_held(cursor: Any, now_ms: Millis, row: tuple[Any, ...]) -> tuple[int | None, int | None] | None:
    """Hold a run for its owner: when it is ready and when it was asked to stop; None where the fence refuses."""
    given = (now_ms, *row)
    if cursor.execute(_HOLD_UNMARKED, given).rowcount:
        return (None, None)
    marks: tuple[int | None, int | None] | None = cursor.execute(_HOLD_MARKED, given).fetchone()
    return marks


def _opened(cursor: Any, work: WaitOp) -> Applied | None:
    fence, given = work.fence, attempt_row(work.attempt)
    *asked, facts = work.asked()
    key = given[:2]
    entry = cursor.execute(_OPEN, (fence.now_ms, int(facts is not None), *lease_row(fence), *key)).fetchone()
    if entry is None:
        return None
    run_key = key_of(fence.lease.run_id)
    cursor.execute(_STORE, (run_key, fence.lease.epoch, *given))
    if facts is not None:
        cursor.execute(_ASK, (run_key, key[0], *asked))
        cursor.execute(NOTE, (run_key, entry[0], fence.now_ms, "asked", facts))
    return Applied()


def _parked(cursor: Any, work: ParkOp) -> Applied | None:
    command, now_ms = work.command, work.fence.now_ms
    ready = command.ready_at_ms
    given = (*work.waiting, ready, ready, *lease_row(work.fence), ready is not None, command.seen_ms)
    entry = cursor.execute(_PARK, given).fetchone()
    if entry is None:
        return None
    run_key = key_of(command.lease.run_id)
    cursor.execute(_REQUEST, (command.request, run_key))
    cursor.execute(NOTE, (run_key, entry[0], now_ms, "suspended", work.facts))
    return Applied()


def _ended(cursor: Any, work: SettleOp) -> Applied | None:
    command, now_ms = work.command, work.fence.now_ms
    cancelled = command.status.value == "cancelled"
    given = (command.status.value, now_ms, *lease_row(work.fence), command.seen_ms, cancelled)
    entry = cursor.execute(_END, given).fetchone()
    if entry is None:
        return None
    run_key = key_of(command.lease.run_id)
    cursor.execute(_RESULT, (command.result, command.error, run_key))
    cursor.execute(NOTE, (run_key, entry[0], now_ms, "settled", work.facts))
    return Applied()


def _begun(cursor: Any, work: StartOp) -> Applied | None:
    row = dict(zip(BEGUN, work.row(), strict=True))
    columns = ("run_id", "workflow", "version", "priority", "ready_at", "created_at", "idempotency_key")
    if not cursor.execute(_BEGIN, tuple(row[name] for name in columns)).rowcount:
        return None
    cursor.execute(_INPUT, (row["run_id"], row["full_id"], row["input"], row["trace"]))
    cursor.execute(NOTE, (row["run_id"], 1, row["created_at"], "created", row["facts"]))
    return Applied()
