"""Many writes in one statement and one commit (kernel 3 and 5): fenced records, ends and beginnings of runs.

The statement is put together of the parts that a flush needs. Rows of runs are locked in the order of their keys,
each looked up by itself so that no plan scans them all, and fenced by every part of the lease.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection

from belay_drivers.sql.bulk import BEGUN, OPEN_STATES, Beginning, Bulk, Plain, Recording, Settling, Work, lease_row
from belay_drivers.sql.children import ATTEMPT_COLUMNS, REPLACED, attempt_row

Row: TypeAlias = Sequence[object]

_TEXT: Final = "text"
_NUMBER: Final = "bigint"
_LEASE: Final = {
    "run_id": _TEXT,
    "host_id": _TEXT,
    "pid": _NUMBER,
    "nonce": _TEXT,
    "epoch": _NUMBER,
    "seq": _NUMBER,
    "now_ms": _NUMBER,
}
_ASKED: Final = {**_LEASE, "several": "boolean"}
_NUMBERS: Final = frozenset({"attempt", "idempotent", "recorded", "started_at", "finished_at"})
_GIVEN: Final = {"place": _NUMBER, **{name: _NUMBER if name in _NUMBERS else _TEXT for name in ATTEMPT_COLUMNS}}
_ENDS: Final = {**_LEASE, "status": _TEXT, "result": _TEXT, "error": _TEXT, "seen": _NUMBER, "facts": _TEXT}
_NEWS: Final = {name: _NUMBER if name in {"priority", "ready_at", "created_at"} else _TEXT for name in BEGUN}
_FENCED: Final = """r.run_id = a.run_id AND r.status = 'running' AND r.owner_host_id = a.host_id
      AND r.owner_pid = a.pid AND r.owner_nonce = a.nonce AND r.epoch = a.epoch AND r.write_seq = a.seq"""

# Attempts of a run are written by its owner alone, and each such write moves the sequence on: what the statement sees
# of them when it begins is what there is when the fence holds.
_RECORDS: Final = f"""asked AS (
  SELECT * FROM unnest({{asked}}) WITH ORDINALITY AS t ({", ".join(_ASKED)}, place) ORDER BY run_id COLLATE "C"
), given AS MATERIALIZED (
  SELECT * FROM unnest({{given}}) AS t ({", ".join(_GIVEN)})
), blocked AS MATERIALIZED (
  SELECT g.place FROM asked a JOIN given g ON g.place = a.place
    JOIN belay_attempts k ON k.run_id = a.run_id AND k.step_key_digest = g.step_key_digest AND k.attempt = g.attempt
  WHERE a.several AND k.state NOT IN ({OPEN_STATES})
), locked AS MATERIALIZED (
  SELECT a.place, a.now_ms, t.run_id FROM asked a CROSS JOIN LATERAL (
    SELECT r.run_id FROM belay_runs r WHERE {_FENCED} FOR NO KEY UPDATE
  ) t
), held AS (
  UPDATE belay_runs r
  SET write_seq = r.write_seq + 1, heartbeat_at = greatest(r.heartbeat_at, l.now_ms), takeovers = 0
  FROM locked l WHERE r.run_id = l.run_id AND l.place NOT IN (SELECT place FROM blocked)
  RETURNING l.place, r.run_id, r.epoch, r.ready_at, r.cancel_requested_at
), stored AS (
  INSERT INTO belay_attempts AS kept (run_id, epoch, {", ".join(ATTEMPT_COLUMNS)})
  SELECT h.run_id, h.epoch, {", ".join(f"g.{name}" for name in ATTEMPT_COLUMNS)}
  FROM held h JOIN given g ON g.place = h.place
  ON CONFLICT (run_id, step_key_digest, attempt)
    DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in REPLACED)} WHERE kept.state IN ({OPEN_STATES})
  RETURNING 1
)"""
_RECORDED: Final = (
    "SELECT 0 AS kind, place, run_id, ready_at, cancel_requested_at, (SELECT count(*) FROM stored) AS stored FROM held"
)

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
    status = e.status, owner_host_id = NULL, owner_pid = NULL, owner_nonce = NULL, heartbeat_at = NULL,
    claim_host_id = NULL, claim_pid = NULL, claim_nonce = NULL, claimed_at = NULL,
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
_ENDED: Final = "SELECT 1 AS kind, place, run_id, NULL::bigint, NULL::bigint, NULL::bigint FROM ended"

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
_BEGUN: Final = "SELECT 2 AS kind, NULL::bigint, run_id, NULL::bigint, NULL::bigint, NULL::bigint FROM begun"

_PARTS: Final = (
    (_RECORDS, _RECORDED, {"asked": _ASKED, "given": _GIVEN}),
    (_ENDINGS, _ENDED, {"ends": _ENDS}),
    (_BEGINNINGS, _BEGUN, {"news": _NEWS}),
)


@cache
def _statement(*wanted: bool) -> str:
    """The statement for flushes that hold these kinds of writes."""
    parts = [part for part, is_wanted in zip(_PARTS, wanted, strict=True) if is_wanted]
    names = {name: columns for _, _, columns_of in parts for name, columns in columns_of.items()}
    given: dict[str, str] = {}
    count = 0
    for name, columns in names.items():
        numbered = enumerate(columns.values(), count + 1)
        given[name] = ", ".join(f"${number}::{kind}[]" for number, kind in numbered)
        count += len(columns)
    bodies = ", ".join(body for body, _, _ in parts).format(**given)
    answers = " UNION ALL ".join(answer for _, answer, _ in parts)
    return f"WITH {bodies} {answers}"


class PostgresBulk(Bulk):
    """One statement a flush, whatever it holds."""

    def run(self, tx: Connection, works: Sequence[Work]) -> Sequence[Plain | None]:
        """Do the writes that can be done plainly; an answer for each, in their order."""
        records = [(place, work) for place, work in enumerate(works) if isinstance(work, Recording)]
        ends = [(place, work) for place, work in enumerate(works) if isinstance(work, Settling)]
        news = [(place, work) for place, work in enumerate(works) if isinstance(work, Beginning)]
        given: list[object] = []
        if records:
            given += _recording([work for _, work in records])
        if ends:
            given += _columns(_ENDS, [_ending(work) for _, work in ends])
        if news:
            given += _columns(_NEWS, [work.row() for _, work in news])
        rows: Sequence[Any] = tx.exec_driver_sql(_statement(bool(records), bool(ends), bool(news)), tuple(given)).all()
        answers: list[Plain | None] = [None] * len(works)
        begun = {work.key: place for place, work in news}
        due = stored = 0
        places: list[list[int]] = [[at for at, _ in records], [at for at, _ in ends]]
        for kind, number, key, ready_at, cancel_requested_at, count in rows:
            place: int = begun[str(key)] if number is None else places[int(kind)][int(number) - 1]
            answers[place] = Plain(ready_at, cancel_requested_at)
            if kind == 0:
                due, stored = due + works[place].rows, count
        if stored < due:
            self._doubt(answers, places[0])
        return answers

    @staticmethod
    def _doubt(answers: list[Plain | None], places: Iterable[int]) -> None:
        """Some attempt had ended before and was not stored again; which one it was, single writes will tell."""
        for place in places:
            if answers[place] is not None:
                answers[place] = Plain(doubtful=True)


def _recording(works: Sequence[Recording]) -> list[object]:
    leases = [(*lease_row(work.fence), work.fence.now_ms, len(work.attempts) > 1) for work in works]
    rows = [(place, *attempt_row(each)) for place, work in enumerate(works, 1) for each in work.attempts]
    return [*_columns(_ASKED, leases), *_columns(_GIVEN, rows)]


def _ending(work: Settling) -> Row:
    command = work.command
    lease = (*lease_row(work.fence), work.fence.now_ms)
    return (*lease, command.status.value, command.result, command.error, command.seen_ms, work.facts)


def _columns(names: Mapping[str, str], rows: Sequence[Row]) -> list[object]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return [*columns, *([] for _ in range(len(names) - len(columns)))]
