"""Scopes of open writes: the one a call is made in, its hooks, and whether it has ended.

The innermost scope is a context variable of the call, which tasks started inside inherit.
"""

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import Final, Optional, Self

from belay_core.errors import WriterError
from belay_core.stores.writer import Hook, Writer

_CURRENT: Final[ContextVar[Optional["WriteScope"]]] = ContextVar("belay_open_write", default=None)


class WriteScope:
    """One scope of an open write on one database: the transaction itself, or a savepoint in it.

    Work in a scope is serialized (``turn``), including that of a nested scope.
    """

    def __init__(self, database: object, parent: "WriteScope | None" = None) -> None:
        self.database = database
        self.parent = parent
        """The scope that this one is a savepoint of."""
        self.around: WriteScope | None = None
        """The scope it was opened in, on any database."""
        self.turn = asyncio.Lock()
        self.hooks: list[Hook] = []
        self.writer: Writer | None = None
        self.left = False
        self._token: Token[WriteScope | None] | None = None

    @property
    def over(self) -> bool:
        """Whether this scope, or an outer one, has ended."""
        return self.left or (self.parent is not None and self.parent.over)

    def __enter__(self) -> Self:
        self.around = _CURRENT.get()
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_broken: object) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)
        self.left = True

    def check_open(self) -> None:
        """Raise ``WriterError`` for a call after the end of the scope, or for one that would wait for its own scope."""
        if self.over:
            raise WriterError("ended", "write", "this transaction is over")
        current = innermost(self.database)
        if current is not None and current.is_within(self):
            raise _inside()

    def is_within(self, level: "WriteScope") -> bool:
        """Whether this is a savepoint of that scope, at any depth."""
        return self.parent is not None and (self.parent is level or self.parent.is_within(level))


def innermost(database: object) -> WriteScope | None:
    """The innermost scope of an open write on this database that the call is made in."""
    return next((level for level in _around() if level.database is database and not level.over), None)


def refuse_inside(database: object) -> None:
    """Raise ``WriterError`` inside an open write: another connection would not see it, and might deadlock with it."""
    # Most calls are outside of any write.
    if _CURRENT.get() is not None and innermost(database) is not None:
        raise _inside()


def _around() -> Iterator[WriteScope]:
    level = _CURRENT.get()
    while level is not None:
        yield level
        level = level.around


def _inside() -> WriterError:
    return WriterError("inside", "write", "inside a write, use the transaction its function was given")
