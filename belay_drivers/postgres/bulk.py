"""Many writes in one statement and one commit (kernel 3 and 5): fenced records, ends and beginnings of runs.

The statement is put together of the parts that a flush needs. Rows of runs are locked in the order of their keys,
each looked up by itself so that no plan scans them all, and fenced by every part of the lease.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

from belay_drivers.sql.bulk import BEGUN, OPEN_STATES, Beginning, Plain, Recording, Settling, Work, lease_row
from belay_drivers.sql.children import ATTEMPT_COLUMNS, REPLACED, attempt_row
from belay_drivers.sql.rows import Columns

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
_NUMBERS: Final = frozenset({"attempt", "idempotent", "recorded", "started_at", "finished_at"})
_ATTEMPT: Final = {name: _NUMBER if name in _NUMBERS else _TEXT for name in ATTEMPT_COLUMNS}
_ONE_EACH: Final = {**_LEASE, **_ATTEMPT}
_GIVEN: Final = {"of_place": _NUMBER, **_ATTEMPT}
_ENDS: Final = {**_LEASE, "status": _TEXT, "result": _TEXT, "error": _TEXT, "seen": _NUMBER, "facts": _TEXT}
_NEWS: Final = {name: _NUMBER if name in {"priority", "ready_at", "created_at"} else _TEXT for name in BEGUN}
_FENCED: Final = """r.run_id = a.run_id AND r.status = 'running' AND r.owner_host_id = a.host_id
      AND r.owner_pid = a.pid AND r.owner_nonce = a.nonce AND r.epoch = a.epoch AND r.write_seq = a.seq"""
_REPLACING: Final = f"""ON CONFLICT (run_id, step_key_digest, attempt)
    DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in REPLACED)} WHERE kept.state IN ({OPEN_STATES})"""
_ALONE: Final = ", ".join(f"${number}::{kind}" for number, kind in enumerate(_ATTEMPT.values(), len(_LEASE) + 1))

# What each statement does to the row of a run.
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
_LONE: Final = f"""WITH held AS (
  UPDATE belay_runs SET write_seq = write_seq + 1, heartbeat_at = greatest(heartbeat_at, $7::bigint), takeovers = 0
  WHERE run_id = $1::text AND status = 'running' AND owner_host_id = $2::text AND owner_pid = $3::bigint
    AND owner_nonce = $4::text AND epoch = $5::bigint AND write_seq = $6::bigint
  RETURNING run_id, epoch, ready_at, cancel_requested_at
), stored AS (
  INSERT INTO belay_attempts AS kept (run_id, epoch, {_COLUMNS})
  SELECT run_id, epoch, {_ALONE} FROM held {_REPLACING} RETURNING 1
)
SELECT ready_at, cancel_requested_at, (SELECT count(*) FROM stored) AS stored FROM held"""

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
_ENDED: Final = "SELECT 2 AS kind, place, run_id, NULL::bigint, NULL::bigint, NULL::bigint FROM ended"

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
_BEGUN: Final = "SELECT 3 AS kind, NULL::bigint, run_id, NULL::bigint, NULL::bigint, NULL::bigint FROM begun"

_PARTS: Final = (
    (_SINGLES, _SINGLE, {"one": _ONE_EACH}),
    (_RECORDS, _RECORDED, {"asked": _LEASE, "given": _GIVEN}),
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


class Flush:
    """One statement that does writes of several runs, and how its rows answer them."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        singles = [(place, work) for place, work in enumerate(works) if isinstance(work, Recording) and work.rows == 1]
        several = [(place, work) for place, work in enumerate(works) if isinstance(work, Recording) and work.rows != 1]
        ends = [(place, work) for place, work in enumerate(works) if isinstance(work, Settling)]
        news = [(place, work) for place, work in enumerate(works) if isinstance(work, Beginning)]
        given: list[object] = []
        if singles:
            given += _columns(_ONE_EACH, [_lone(work) for _, work in singles])
        if several:
            given += _several([work for _, work in several])
        if ends:
            given += _columns(_ENDS, [_ending(work) for _, work in ends])
        if news:
            given += _columns(_NEWS, [work.row() for _, work in news])
        self.sql = _statement(bool(singles), bool(several), bool(ends), bool(news))
        self.given = tuple(given)
        self._begun = {work.key: place for place, work in news}
        self._places: list[list[int]] = [
            [place for place, _ in singles],
            [place for place, _ in several],
            [place for place, _ in ends],
        ]

    def answers(self, rows: Sequence[Columns]) -> Sequence[Plain | None]:
        """An answer for each write, in their order."""
        answers: list[Plain | None] = [None] * len(self._works)
        due, stored = [0] * len(self._places), [0] * len(self._places)
        for row in rows:
            kind, number, key, ready_at, cancel_requested_at, count = row.values()
            place = self._begun[key] if number is None else self._places[int(kind)][int(number) - 1]
            answers[place] = Plain(ready_at, cancel_requested_at)
            if count is not None:
                due[kind] += self._works[place].rows
                stored[kind] = count
        for kind, places in enumerate(self._places):
            if stored[kind] < due[kind]:
                # Some attempt had ended before and was not stored again; which one it was, single writes will tell.
                for place in places:
                    answers[place] = answers[place] and Plain(doubtful=True)
        return answers


class LoneRecord:
    """One attempt of one run: there is no order of locks to keep, so that its fence is the update itself."""

    sql = _LONE

    def __init__(self, work: Recording) -> None:
        self.given = _lone(work)

    @staticmethod
    def answers(rows: Sequence[Columns]) -> Sequence[Plain | None]:
        """The answer to it."""
        if not rows:
            return (None,)
        ready_at, cancel_requested_at, stored = rows[0].values()
        return (Plain(ready_at, cancel_requested_at) if stored else Plain(doubtful=True),)


def flush_of(works: Sequence[Work]) -> Flush | LoneRecord:
    """The statement that does these writes."""
    if len(works) == 1 and isinstance(works[0], Recording) and works[0].rows == 1:
        return LoneRecord(works[0])
    return Flush(works)


def _several(works: Sequence[Recording]) -> list[object]:
    leases = [(*lease_row(work.fence), work.fence.now_ms) for work in works]
    rows = [(place, *attempt_row(each)) for place, work in enumerate(works, 1) for each in work.attempts]
    return [*_columns(_LEASE, leases), *_columns(_GIVEN, rows)]


def _lone(work: Recording) -> tuple[object, ...]:
    fence, (attempt,) = work.fence, work.attempts
    return (*lease_row(fence), fence.now_ms, *attempt_row(attempt))


def _ending(work: Settling) -> Row:
    command = work.command
    lease = (*lease_row(work.fence), work.fence.now_ms)
    return (*lease, command.status.value, command.result, command.error, command.seen_ms, work.facts)


def _columns(names: Mapping[str, str], rows: Sequence[Row]) -> list[object]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return [*columns, *([] for _ in range(len(names) - len(columns)))]
