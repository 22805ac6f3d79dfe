"""Levels of open writes: which one a call is made in, what it registered, whether it is over.

The innermost level is known from the context of the call, which tasks started inside inherit.
"""

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import Final, Optional, Self

from belay_core.errors import WriterError
from belay_core.stores.writer import Hook, Writer

_CURRENT: Final[ContextVar[Optional["Scope"]]] = ContextVar("belay_open_write", default=None)


class Scope:
    """One level of an open write on one database: the transaction itself, or a savepoint in it.

    What is done at a level goes one after another (``turn``), a level within it included.
    """

    def __init__(self, database: object, parent: "Scope | None" = None) -> None:
        self.database = database
        self.parent = parent
        """The level that this one is a savepoint of."""
        self.around: Scope | None = None
        """The level it was opened in, on whatever database."""
        self.turn = asyncio.Lock()
        self.hooks: list[Hook] = []
        self.writer: Writer | None = None
        self.left = False
        self._token: Token[Scope | None] | None = None

    @property
    def over(self) -> bool:
        """Whether this level, or one it is part of, was left."""
        return self.left or (self.parent is not None and self.parent.over)

    def __enter__(self) -> Self:
        self.around = _CURRENT.get()
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_broken: object) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)
        self.left = True

    def admit(self) -> None:
        """Refuse a call that comes too late, or that would wait for the level it is made in."""
        if self.over:
            raise WriterError("ended", "write", "this transaction is over")
        current = innermost(self.database)
        if current is not None and current.is_within(self):
            raise _inside()

    def is_within(self, level: "Scope") -> bool:
        """Whether this is a savepoint of that level, or of one within it."""
        return self.parent is not None and (self.parent is level or self.parent.is_within(level))


def innermost(database: object) -> Scope | None:
    """The level of an open write on this database that the call is made in."""
    return next((level for level in _around() if level.database is database and not level.over), None)


def admit_outside(database: object) -> None:
    """Refuse a call past an open write: it would not see what that wrote, and might wait for it for ever."""
    # Most calls are made outside of any write.
    if _CURRENT.get() is not None and innermost(database) is not None:
        raise _inside()


def _around() -> Iterator[Scope]:
    level = _CURRENT.get()
    while level is not None:
        yield level
        level = level.around


def _inside() -> WriterError:
    return WriterError("inside", "write", "inside a write, use the transaction its function was given")
