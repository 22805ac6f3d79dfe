"""What databases disagree on, as small as it can be kept."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from sqlalchemy import ColumnElement, Connection, Engine, Insert, Table

from belay_core.errors import DatabaseCode, DatabaseError


@dataclass(frozen=True, slots=True)
class Failure:
    """What a driver's exception says, without a word of its text.

    ``again`` is whether the same statement may succeed later and is known not to have happened; ``lost`` whether the
    connection went away, so that what was sent last may have happened or not.
    """

    code: DatabaseCode
    sqlstate: str | None = None
    again: bool = False
    lost: bool = False

    def error(self) -> DatabaseError:
        """The failure as the cause callers are shown."""
        return DatabaseError(self.code, self.sqlstate, transient=self.again)

    def undone(self) -> "Failure":
        """The same where no commit had been sent: a connection that goes away takes its transaction with it."""
        return replace(self, again=self.again or self.lost)


Fate: TypeAlias = Literal["committed", "aborted", "in progress", "unknown"]
"""What became of a transaction; ``unknown`` where the database cannot tell any more."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A transaction as the database itself names it; ``history`` tells whether it is the same database still."""

    number: str
    backend: int
    history: str


_MOST_CAUSES: Final = 8
"""How deep a database's exception is looked for among its wrappings."""


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from, the outermost first."""
    link: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if link is None:
            return
        yield link
        link = getattr(link, "orig", None) or link.__cause__ or link.__context__


class SqlDialect(Protocol):
    """One database's way of saying what the shared statements mean."""

    name: str

    @abstractmethod
    def insert_if_absent(self, table: Table) -> Insert:
        """An INSERT that does nothing where any unique key of its row exists."""

    @abstractmethod
    def insert_or_replace(
        self, table: Table, keys: Sequence[str], replaced: Sequence[str], where: ColumnElement[bool]
    ) -> Insert:
        """An INSERT that replaces these columns of the row with the same keys, if that row meets the condition."""

    @abstractmethod
    def speaks(self, engine: Engine) -> bool:
        """Whether this engine reaches a database of this kind."""

    @abstractmethod
    def explain(self, error: BaseException) -> Failure | None:
        """What an exception of the database's driver means; None where it is somebody else's."""

    @abstractmethod
    def is_empty(self, tx: Connection) -> bool:
        """Whether the database holds nothing of anybody's."""

    @abstractmethod
    def mark(self, tx: Connection) -> Mark | None:
        """The open transaction's name; None where its end needs no asking for, or it has written nothing."""

    @abstractmethod
    def fate(self, tx: Connection, mark: Mark) -> Fate:
        """What became of a transaction to whose commit no reply came; it is ended where it still waits."""

    @abstractmethod
    def join(self, tx: Connection) -> None:
        """Be in a transaction on a connection of the caller's, whatever the caller's engine does about beginning."""
