"""SQLite's way of saying what the shared statements mean."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Insert, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import StatementError

from belay_core.errors import DatabaseCode
from belay_drivers.sql.connection.dialect import Failure, Fate, Mark, SqlDialect, causes_of

_KINDS: Final[tuple[tuple[str, DatabaseCode, bool], ...]] = (
    ("SQLITE_BUSY", "busy", True),
    ("SQLITE_LOCKED", "busy", True),
    ("SQLITE_CONSTRAINT", "constraint", False),
    ("SQLITE_MISMATCH", "constraint", False),
    ("SQLITE_TOOBIG", "content", False),
    ("SQLITE_IOERR", "io", False),
    ("SQLITE_CANTOPEN", "io", False),
    ("SQLITE_FULL", "io", False),
    ("SQLITE_CORRUPT", "io", False),
    ("SQLITE_NOTADB", "io", False),
    ("SQLITE_READONLY", "io", False),
)


class SqliteDialect(SqlDialect):
    """The one dialect of the SQLite driver."""

    name = "sqlite"

    def insert_if_absent(self, table: Table) -> Insert:
        """An INSERT that does nothing where any unique key of its row exists."""
        return sqlite.insert(table).on_conflict_do_nothing()

    def insert_or_replace(
        self, table: Table, keys: Sequence[str], replaced: Sequence[str], where: ColumnElement[bool]
    ) -> Insert:
        """An INSERT that replaces these columns of the row with the same keys, if that row meets the condition."""
        adding = sqlite.insert(table)
        return adding.on_conflict_do_update(
            index_elements=list(keys),
            set_={name: adding.excluded[name] for name in replaced},
            where=where,
        )

    def is_empty(self, tx: Connection) -> bool:
        """Whether a file holds no table, view or trigger, and no application has marked it as its own."""
        marks = [tx.exec_driver_sql(f"PRAGMA {mark}").scalar_one() for mark in ("application_id", "user_version")]
        return not any(marks) and not tx.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()

    def mark(self, tx: Connection) -> None:
        """None: a commit is a call within this process, whose answer cannot get lost on its way."""

    def fate(self, tx: Connection, mark: Mark) -> Fate:  # noqa: ARG002  no transaction has a mark here
        """Unknown: nobody has to ask."""
        return "unknown"

    def join(self, tx: Connection) -> None:
        """Be in a transaction: Python's driver begins one before the first change, and none before a savepoint."""
        if not tx.in_transaction():
            tx.begin()
        driver: Any = tx.connection.driver_connection
        if not driver.in_transaction:
            # A savepoint outside a transaction would commit when it is released.
            tx.exec_driver_sql("BEGIN IMMEDIATE")

    def speaks(self, engine: Engine) -> bool:
        """Whether this engine reaches a database of this kind."""
        return engine.dialect.name == self.name

    def explain(self, error: BaseException) -> Failure | None:
        """What an exception of the database's driver means; None where it is somebody else's."""
        for link in causes_of(error):
            if isinstance(link, sqlite3.Error):
                return _failure(getattr(link, "sqlite_errorname", None))
        if isinstance(error, StatementError | OSError | OverflowError | UnicodeEncodeError):
            if any(isinstance(link, OverflowError | UnicodeEncodeError) for link in causes_of(error)):
                # The driver refused a value before anything was executed.
                return Failure("content")
            return Failure("io" if isinstance(error, OSError) else "unknown")
        return None


def _failure(name: str | None) -> Failure:
    for prefix, code, again in _KINDS:
        if name is not None and name.startswith(prefix):
            return Failure(code, name, again=again)
    return Failure("unknown", name)


DIALECT: Final = SqliteDialect()
