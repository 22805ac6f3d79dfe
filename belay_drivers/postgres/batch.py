"""Many writes in one statement and one commit (kernel 3 and 5), put together of the parts that a flush needs."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from belay_drivers.postgres.batch_parts import LONE, PARTS, Part
from belay_drivers.postgres.columns import arrays_given, joined, texts_given
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.statements.write_ops import (
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

Row: TypeAlias = Sequence[object]


class _Statement(NamedTuple):
    """The statement for flushes of some kinds of writes: with its columns as texts, or as arrays of these kinds."""

    kinds: tuple[str, ...]
    with_texts: str
    with_arrays: str


@cache
def _statement(*wanted: bool) -> _Statement:
    """The statement for flushes that hold these kinds of writes."""
    parts = [part for part, is_wanted in zip(PARTS, wanted, strict=True) if is_wanted]
    kinds = tuple(kind for part in parts for columns in part.given.values() for kind in columns.values())
    return _Statement(kinds, _sql(parts, texts_given), _sql(parts, arrays_given))


def _sql(parts: Sequence[Part], unnested: Callable[[Sequence[str], int], str]) -> str:
    given: dict[str, str] = {}
    first = 1
    for name, columns in ((name, columns) for part in parts for name, columns in part.given.items()):
        given[name] = unnested([*columns.values()], first)
        first += len(columns)
    bodies = ", ".join(part.body for part in parts).format(**given)
    answers = " UNION ALL ".join(part.answer for part in parts)
    return f"WITH {bodies} {answers}"


class Flush:
    """One statement that does writes of several runs, and how its rows answer them."""

    def __init__(self, works: Sequence[WriteOp]) -> None:
        self._works = works
        self._places: list[list[int]] = [[] for _ in PARTS]
        for place, work in enumerate(works):
            self._places[_kind_of(work)].append(place)
        self._begun = {work.key: place for place, work in enumerate(works) if isinstance(work, StartOp)}
        columns = [
            column
            for columns, places in zip(_COLUMNS, self._places, strict=True)
            if places
            for column in columns([works[place] for place in places])
        ]
        statement = _statement(*map(bool, self._places))
        texts = joined(statement.kinds, columns)
        self.sql = statement.with_arrays if texts is None else statement.with_texts
        self.given: tuple[object, ...] = tuple(columns if texts is None else texts)

    def answers(self, rows: Sequence[Columns]) -> Sequence[Applied | None]:
        """An answer for each write, in their order."""
        answers: list[Applied | None] = [None] * len(self._works)
        due, stored = [0] * len(self._places), [0] * len(self._places)
        for row in rows:
            kind, number, key, ready_at, cancel_requested_at, count = row.values()
            place = self._begun[key] if number is None else self._places[int(kind)][int(number) - 1]
            answers[place] = Applied(ready_at, cancel_requested_at)
            if count is not None:
                due[kind] += self._works[place].rows
                stored[kind] = count
        for kind, places in enumerate(self._places):
            if stored[kind] < due[kind]:
                # Some attempt had ended before and was not stored again; which one it was, single writes will tell.
                for place in places:
                    answers[place] = answers[place] and Applied(ambiguous=True)
        return answers


class LoneRecord:
    """One attempt of one run: there is no order of locks to keep, so that its fence is the update itself."""

    sql = LONE

    def __init__(self, work: RecordOp) -> None:
        self.given = tuple(_lone(work))

    @staticmethod
    def answers(rows: Sequence[Columns]) -> Sequence[Applied | None]:
        """The answer to it."""
        if not rows:
            return (None,)
        ready_at, cancel_requested_at, stored = rows[0].values()
        return (Applied(ready_at, cancel_requested_at) if stored else Applied(ambiguous=True),)


def flush_of(works: Sequence[WriteOp]) -> Flush | LoneRecord:
    """The statement that does these writes."""
    if len(works) == 1 and isinstance(works[0], RecordOp) and works[0].rows == 1:
        return LoneRecord(works[0])
    return Flush(works)


def _kind_of(work: WriteOp) -> int:
    """Its place in ``PARTS``."""
    match work:
        case RecordOp():
            return 0 if work.rows == 1 else 1
        case WaitOp():
            return 2
        case ParkOp():
            return 3
        case SettleOp():
            return 4
        case StartOp():
            return 5


def _singles(works: Sequence[RecordOp]) -> list[list[object]]:
    return _columns([_lone(work) for work in works])


def _several(works: Sequence[RecordOp]) -> list[list[object]]:
    leases = [_lease(work) for work in works]
    rows = [(place, *attempt_row(each)) for place, work in enumerate(works, 1) for each in work.attempts]
    return [*_columns(leases), *_columns(rows)]


def _openings(works: Sequence[WaitOp]) -> list[list[object]]:
    return _columns([(*_lease(work), *attempt_row(work.attempt), *work.asked()) for work in works])


def _parkings(works: Sequence[ParkOp]) -> list[list[object]]:
    return _columns([_parking(work) for work in works])


def _endings(works: Sequence[SettleOp]) -> list[list[object]]:
    return _columns([_ending(work) for work in works])


def _beginnings(works: Sequence[StartOp]) -> list[list[object]]:
    return _columns([work.row() for work in works])


_COLUMNS: Final[tuple[Callable[[Sequence[Any]], list[list[object]]], ...]] = (
    _singles,
    _several,
    _openings,
    _parkings,
    _endings,
    _beginnings,
)
"""What each of ``PARTS`` is given, of the writes of its kind."""


def _lone(work: RecordOp) -> Row:
    fence = work.fence
    return (*lease_row(fence), fence.now_ms, *attempt_row(work.attempts[0]))


def _parking(work: ParkOp) -> Row:
    command = work.command
    return (*_lease(work), *work.waiting, command.request, command.ready_at_ms, command.seen_ms, work.facts)


def _ending(work: SettleOp) -> Row:
    command = work.command
    return (*_lease(work), command.status.value, command.result, command.error, command.seen_ms, work.facts)


def _lease(work: RecordOp | WaitOp | ParkOp | SettleOp) -> Row:
    return (*lease_row(work.fence), work.fence.now_ms)


def _columns(rows: Sequence[Row]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
