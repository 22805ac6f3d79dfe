"""The differences between the databases, as few as possible."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from sqlalchemy import ColumnElement, Connection, Engine, Insert, Table

from belay_core.errors import DatabaseCode, DatabaseError


@dataclass(frozen=True, slots=True)
class Failure:
    """The kind of a driver's exception, without its text.

    ``again`` is whether the same statement may succeed later and is known not to have happened; ``lost`` whether the
    connection was lost, so that the last statement may have happened or not.
    """

    code: DatabaseCode
    sqlstate: str | None = None
    again: bool = False
    lost: bool = False

    def error(self) -> DatabaseError:
        """The failure as the cause in a store's error."""
        return DatabaseError(self.code, self.sqlstate, transient=self.again)

    def undone(self) -> "Failure":
        """The same without a commit sent: a lost connection rolls its transaction back."""
        return replace(self, again=self.again or self.lost)


Fate: TypeAlias = Literal["committed", "aborted", "in progress", "unknown"]
"""The outcome of a transaction; ``unknown`` if the database no longer has it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The database's own id of a transaction; ``history`` identifies the database and its timeline."""

    number: str
    backend: int
    history: str


_MOST_CAUSES: Final = 8
"""Maximum depth at which a database's exception is searched in a chain of causes."""


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception and its causes, the outermost first."""
    link: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if link is None:
            return
        yield link
        link = getattr(link, "orig", None) or link.__cause__ or link.__context__


class SqlDialect(Protocol):
    """The parts of the shared statements that differ between databases."""

    name: str

    @abstractmethod
    def insert_if_absent(self, table: Table) -> Insert:
        """An INSERT that does nothing if any unique key of its row exists."""

    @abstractmethod
    def insert_or_replace(
        self, table: Table, keys: Sequence[str], replaced: Sequence[str], where: ColumnElement[bool]
    ) -> Insert:
        """An INSERT that replaces these columns of the row with the same keys, if that row meets the condition."""

    @abstractmethod
    def speaks(self, engine: Engine) -> bool:
        """Whether this engine connects to a database of this kind."""

    @abstractmethod
    def explain(self, error: BaseException) -> Failure | None:
        """The failure of an exception of the database's driver; None for any other exception."""

    @abstractmethod
    def is_empty(self, tx: Connection) -> bool:
        """Whether the database has no tables."""

    @abstractmethod
    def mark(self, tx: Connection) -> Mark | None:
        """The id of the open transaction; None if its outcome is never unknown, or it has written nothing."""

    @abstractmethod
    def fate(self, tx: Connection, mark: Mark) -> Fate:
        """The outcome of a transaction whose commit got no reply; it is aborted if it is still open."""

    @abstractmethod
    def join(self, tx: Connection) -> None:
        """Ensure an open transaction on a connection of the caller's, whatever its engine's autobegin does."""
