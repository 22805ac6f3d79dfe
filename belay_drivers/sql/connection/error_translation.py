"""Translate database failures into store errors, which repeat nothing of what was sent or returned."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias, TypeVar, cast

from belay_core.errors import DatabaseError, StoreError
from belay_drivers.sql.statements.rows import Undecodable

T = TypeVar("T")

Fails: TypeAlias = Callable[[DatabaseError | Undecodable], StoreError]


async def translate_errors(work: Awaitable[T], fails: Fails) -> T:
    """Await the work; a failure of the database is raised as the error that ``fails`` makes of it."""
    try:
        return await work
    except (DatabaseError, Undecodable) as failure:
        error = fails(failure)
    # Raised here, so that no driver's exception is its context.
    raise error


def code_of(failure: DatabaseError) -> str:
    """The store's code for a failure of the database."""
    return "constraint" if failure.code == "constraint" else "persistence_failed"


def is_transient(error: BaseException, seen: "set[int] | None" = None) -> bool:
    """Whether the root of an error is a database failure that may be retried.

    The first database failure in the chain decides; of an exception group each member has to be one.
    """
    seen = set() if seen is None else seen
    for link in _chain(error, seen):
        if isinstance(link, DatabaseError):
            return link.transient
        if isinstance(link, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", link)
            return all(is_transient(each, seen) for each in group.exceptions)
    return False


def _chain(error: BaseException, seen: set[int]) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = _cause(link)


def _cause(error: BaseException) -> BaseException | None:
    named = error.cause.get("cause") if isinstance(error, StoreError) and error.cause is not None else None
    if isinstance(named, BaseException):
        return named
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)
