"""The straight way of hot statements to a database: over one connection, past SQLAlchemy's work on each.

What is sent so is told to the listeners of the engine all the same, as SQLAlchemy would.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import Engine

from belay_drivers.sql.statements.write_ops import Applied, WriteOp


class NotSent(Exception):
    """The connection could not be opened, as the cause tells; nothing was sent."""


class StatementChannel(Protocol):
    """Sends one thing at a time. What the database's driver raises is raised; what is cancelled ends the connection."""

    @property
    @abstractmethod
    def sync_engine(self) -> Engine:
        """The engine whose events tell what is sent."""

    @abstractmethod
    async def flush(self, works: Sequence[WriteOp]) -> Sequence[Applied | None]:
        """Do the writes that can be done plainly, in one commit; an answer for each, in their order.

        None stands for one of which nothing is stored: its fence did not hold, another row stood in its way, or it
        asks for more than a plain write. A single write will tell.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""


class EngineEvents:
    """Tells an engine's listeners what is sent past it: before and after each statement, the commit as one."""

    def __init__(self, engine: Engine) -> None:
        self._events: Any = engine.dispatch
        self._line = _Line(engine)

    def before(self, statement: str) -> "Context":
        """It is about to be sent; raises what a listener raises."""
        context = Context()
        if self._events.before_cursor_execute:
            self._events.before_cursor_execute(self._line, None, statement, (), context, False)  # noqa: FBT003
        return context

    def after(self, statement: str, context: "Context") -> None:
        """Its answer has come; raises what a listener raises."""
        if self._events.after_cursor_execute:
            self._events.after_cursor_execute(self._line, None, statement, (), context, False)  # noqa: FBT003


class Context:
    """Stands for SQLAlchemy's context of a statement, where listeners keep what they need when it is over."""


class _Line:
    """Stands for SQLAlchemy's connection."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
