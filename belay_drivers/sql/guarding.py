"""From a failing database to the error of a store: what is raised repeats nothing of what was sent or answered."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from belay_core.errors import DatabaseError, StoreError
from belay_drivers.sql.rows import Undecodable

T = TypeVar("T")

Fails: TypeAlias = Callable[[DatabaseError | Undecodable], StoreError]


async def guarded(work: Awaitable[T], fails: Fails) -> T:
    """Do the work; a failure of the database is raised as what ``fails`` makes of it."""
    try:
        return await work
    except (DatabaseError, Undecodable) as failure:
        error = fails(failure)
    # Out here, so that no driver's exception is a context of this one.
    raise error


def code_of(failure: DatabaseError) -> str:
    """The store's word for a failure of the database."""
    return "constraint" if failure.code == "constraint" else "persistence_failed"
