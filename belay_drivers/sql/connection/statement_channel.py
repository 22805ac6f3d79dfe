"""A channel for hot statements: over one connection, without SQLAlchemy's work on each.

Listeners of the engine's events get these statements nevertheless, as from SQLAlchemy.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import Engine

from belay_drivers.sql.statements.write_ops import Applied, WriteOp


class NotSent(Exception):
    """The connection could not be opened (see the cause); nothing was sent."""


class StatementChannel(Protocol):
    """Sends one operation at a time. Exceptions of the driver are raised; a cancellation closes the connection."""

    @property
    @abstractmethod
    def sync_engine(self) -> Engine:
        """The engine whose events report what is sent."""

    @abstractmethod
    async def flush(self, works: Sequence[WriteOp]) -> Sequence[Applied | None]:
        """Execute the writes of a group in one commit; returns a result for each, in their order.

        None means that nothing of a write is stored: its fence was lost, it conflicts with another row, or it needs
        more than one statement. The same write alone in a transaction finds out which.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""


class EngineEvents:
    """Calls an engine's event listeners for statements of a channel: before and after each, and for the commit."""

    def __init__(self, engine: Engine) -> None:
        self._events: Any = engine.dispatch
        self._connection = _ConnectionStub(engine)

    def before(self, statement: str) -> "StatementContext":
        """Before a statement is sent; raises what a listener raises."""
        context = StatementContext()
        if self._events.before_cursor_execute:
            self._events.before_cursor_execute(self._connection, None, statement, (), context, False)  # noqa: FBT003
        return context

    def after(self, statement: str, context: "StatementContext") -> None:
        """After its result has arrived; raises what a listener raises."""
        if self._events.after_cursor_execute:
            self._events.after_cursor_execute(self._connection, None, statement, (), context, False)  # noqa: FBT003


class StatementContext:
    """A stand-in for SQLAlchemy's context of a statement, in which listeners store data between the two events."""


class _ConnectionStub:
    """A stand-in for SQLAlchemy's connection."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
