"""PostgreSQL's way of saying what the shared statements mean."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg
from sqlalchemy import ColumnElement, Insert, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from belay_core.errors import DatabaseCode
from belay_drivers.sql.dialect import Failure, SqlDialect

LONGEST_CHAIN: Final = 8
_RETRIED: Final = frozenset({"40001", "40P01", "55P03"})
_LOST: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
_CLASSES: Final[dict[str, DatabaseCode]] = {"23": "constraint", "0A": "unsupported", "57": "busy", "58": "io"}


class PostgresDialect(SqlDialect):
    """The one dialect of the PostgreSQL driver."""

    name = "postgresql"

    def insert_if_absent(self, table: Table) -> Insert:
        """An INSERT that does nothing where any unique key of its row exists."""
        return postgresql.insert(table).on_conflict_do_nothing()

    def insert_or_replace(
        self, table: Table, keys: Sequence[str], replaced: Sequence[str], where: ColumnElement[bool]
    ) -> Insert:
        """An INSERT that replaces these columns of the row with the same keys, if that row meets the condition."""
        adding = postgresql.insert(table)
        return adding.on_conflict_do_update(
            index_elements=list(keys),
            set_={name: adding.excluded[name] for name in replaced},
            where=where,
        )

    def explain(self, error: BaseException) -> Failure | None:
        """What an exception of the database's driver means; None where it is somebody else's."""
        links = list(_chain(error))
        for link in links:
            sqlstate = getattr(link, "sqlstate", None)
            if isinstance(sqlstate, str):
                return _failure(sqlstate)
        if any(isinstance(link, asyncpg.DataError | UnicodeEncodeError | OverflowError) for link in links):
            # The driver refused a value before anything was sent.
            return Failure("unknown")
        if isinstance(error, PoolTimeout):
            return Failure("busy", again=True)
        if any(isinstance(link, OSError | asyncio.TimeoutError | asyncpg.InterfaceError) for link in links):
            return Failure("io", lost=True)
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            return Failure("io", lost=True)
        return Failure("unknown") if isinstance(error, StatementError) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        if link is None:
            return
        yield link
        link = getattr(link, "orig", None) or link.__cause__ or link.__context__


def _failure(sqlstate: str) -> Failure:
    if sqlstate in _RETRIED or sqlstate.startswith("53"):
        return Failure("busy", sqlstate, again=True)
    if sqlstate in _LOST or sqlstate.startswith("08"):
        return Failure("io", sqlstate, lost=True)
    return Failure(_CLASSES.get(sqlstate[:2], "unknown"), sqlstate)


DIALECT: Final = PostgresDialect()
