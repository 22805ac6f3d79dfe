"""The SQL dialect of PostgreSQL."""

import asyncio
from collections.abc import Sequence
from typing import Final

import asyncpg
from sqlalchemy import ColumnElement, Connection, Engine, Insert, Integer, Table, Text, bindparam, inspect, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from belay_core.errors import DatabaseCode
from belay_drivers.sql.connection.dialect import Failure, Fate, Mark, SqlDialect, causes_of

READ_ONLY: Final = "25006"
"""The session is one with a server, or under a setting, that takes no writes: another session may be one that does."""
_RETRIED: Final = frozenset({"40001", "40P01", "55P03", READ_ONLY})
_LOST: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
_CLASSES: Final[dict[str, DatabaseCode]] = {
    "0A": "unsupported",
    "22": "content",
    "23": "constraint",
    "42": "content",
    "54": "content",
    "57": "busy",
    "58": "io",
}
_MENDED_OUTSIDE: Final = frozenset({"42501", "42P01", "42703", "42704", "42883"})
"""A right, a table, a column, a type or a function is missing: a grant or a migration mends it, and no other value."""
# The last one is raised if the server has announced the end of a session, and its socket is not closed yet.
_GONE: Final = (OSError, asyncio.TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_FATES: Final = frozenset[Fate]({"committed", "aborted", "in progress"})
_HISTORY_SQL: Final = (
    "(SELECT system_identifier::text FROM pg_control_system()) || ':' || left(pg_walfile_name(pg_current_wal_lsn()), 8)"
)
_HISTORY: Final = text(f"SELECT {_HISTORY_SQL}")
_MARK: Final = text(
    f"SELECT pg_current_xact_id_if_assigned()::text AS number, pg_backend_pid() AS backend, {_HISTORY_SQL} AS history"
)
_END: Final = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :b_backend "
    "AND backend_xid::text = ((CAST(:b_number AS text)::xid8)::xid)::text"
).bindparams(bindparam("b_backend", type_=Integer()), bindparam("b_number", type_=Text()))
_FATE: Final = text("SELECT pg_xact_status(CAST(:b_number AS text)::xid8)").bindparams(
    bindparam("b_number", type_=Text())
)


class PostgresDialect(SqlDialect):
    """The one dialect of the PostgreSQL driver."""

    name = "postgresql"

    def insert_if_absent(self, table: Table) -> Insert:
        """An INSERT that does nothing if any unique key of its row exists."""
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

    def is_empty(self, tx: Connection) -> bool:
        """Whether the current schema has no table and no view."""
        found = inspect(tx)
        return not found.get_table_names() and not found.get_view_names()

    def mark(self, tx: Connection) -> Mark | None:
        """The open transaction's id, its backend and its history; None before its first write."""
        row = tx.execute(_MARK).one()
        return None if row.number is None else Mark(row.number, row.backend, row.history)

    def fate(self, tx: Connection, mark: Mark) -> Fate:
        """The outcome of a transaction; one that is still open is aborted, and its session ended."""
        if tx.execute(_HISTORY).scalar_one() != mark.history:
            # A promoted replica, or another cluster: it has other transaction ids.
            return "unknown"
        tx.execute(_END, {"b_backend": mark.backend, "b_number": mark.number})
        found = tx.execute(_FATE, {"b_number": mark.number}).scalar_one()
        return found if found in _FATES else "unknown"

    def join(self, tx: Connection) -> None:
        """Ensure an open transaction."""
        if not tx.in_transaction():
            tx.begin()

    def speaks(self, engine: Engine) -> bool:
        """Whether this engine connects to PostgreSQL."""
        return engine.dialect.name == self.name

    def explain(self, error: BaseException) -> Failure | None:
        """The failure of an exception of the database's driver; None for any other exception."""
        links = list(causes_of(error))
        for link in links:
            sqlstate = getattr(link, "sqlstate", None)
            if isinstance(sqlstate, str):
                return _failure(sqlstate)
        if any(isinstance(link, asyncpg.DataError | UnicodeEncodeError | OverflowError) for link in links):
            # The driver refused a value before anything was sent.
            return Failure("content")
        if isinstance(error, PoolTimeout):
            return Failure("busy", again=True)
        if any(isinstance(link, _GONE) for link in links):
            return Failure("io", lost=True)
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            return Failure("io", lost=True)
        return Failure("unknown") if isinstance(error, StatementError) else None


def _failure(sqlstate: str) -> Failure:
    if sqlstate in _RETRIED or sqlstate.startswith("53"):
        return Failure("busy", sqlstate, again=True)
    if sqlstate in _LOST or sqlstate.startswith("08"):
        return Failure("io", sqlstate, lost=True)
    if sqlstate in _MENDED_OUTSIDE:
        return Failure("unknown", sqlstate)
    return Failure(_CLASSES.get(sqlstate[:2], "unknown"), sqlstate)


DIALECT: Final = PostgresDialect()
