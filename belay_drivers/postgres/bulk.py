"""Many writes in one statement and one commit (kernel 3 and 5), put together of the parts that a flush needs."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from belay_drivers.postgres.bulk_parts import LONE, PARTS, Part
from belay_drivers.postgres.columns import arrays_given, joined, texts_given
from belay_drivers.sql.bulk import Beginning, Opening, Parking, Plain, Recording, Settling, Work, lease_row
from belay_drivers.sql.children import attempt_row
from belay_drivers.sql.rows import Columns

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

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self._places: list[list[int]] = [[] for _ in PARTS]
        for place, work in enumerate(works):
            self._places[_kind_of(work)].append(place)
        self._begun = {work.key: place for place, work in enumerate(works) if isinstance(work, Beginning)}
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

    sql = LONE

    def __init__(self, work: Recording) -> None:
        self.given = tuple(_lone(work))

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


def _kind_of(work: Work) -> int:
    """Its place in ``PARTS``."""
    match work:
        case Recording():
            return 0 if work.rows == 1 else 1
        case Opening():
            return 2
        case Parking():
            return 3
        case Settling():
            return 4
        case Beginning():
            return 5


def _singles(works: Sequence[Recording]) -> list[list[object]]:
    return _columns([_lone(work) for work in works])


def _several(works: Sequence[Recording]) -> list[list[object]]:
    leases = [_lease(work) for work in works]
    rows = [(place, *attempt_row(each)) for place, work in enumerate(works, 1) for each in work.attempts]
    return [*_columns(leases), *_columns(rows)]


def _openings(works: Sequence[Opening]) -> list[list[object]]:
    return _columns([(*_lease(work), *attempt_row(work.attempt), *work.asked()) for work in works])


def _parkings(works: Sequence[Parking]) -> list[list[object]]:
    return _columns([_parking(work) for work in works])


def _endings(works: Sequence[Settling]) -> list[list[object]]:
    return _columns([_ending(work) for work in works])


def _beginnings(works: Sequence[Beginning]) -> list[list[object]]:
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


def _lone(work: Recording) -> Row:
    fence = work.fence
    return (*lease_row(fence), fence.now_ms, *attempt_row(work.attempts[0]))


def _parking(work: Parking) -> Row:
    command = work.command
    return (*_lease(work), *work.waiting, command.request, command.ready_at_ms, command.seen_ms, work.facts)


def _ending(work: Settling) -> Row:
    command = work.command
    return (*_lease(work), command.status.value, command.result, command.error, command.seen_ms, work.facts)


def _lease(work: Recording | Opening | Parking | Settling) -> Row:
    return (*lease_row(work.fence), work.fence.now_ms)


def _columns(rows: Sequence[Row]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
