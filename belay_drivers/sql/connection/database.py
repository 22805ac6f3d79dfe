"""Transactions on a database: one transaction a write, with its outcome: done, failed, or commit unknown.

A body is a plain function of a ``Connection``; it may run more than once, against the state committed meanwhile.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Final, Generic, Optional, Self, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine

from belay_core import limits
from belay_core.errors import StoresUnusable, WriterError
from belay_core.jitter import Jitter, SystemJitter
from belay_core.stores.writer import Hook, Writer
from belay_drivers.sql.connection.connection_runner import ConnectionRunner, Session
from belay_drivers.sql.connection.dialect import Failure, SqlDialect
from belay_drivers.sql.connection.statement_channel import NotSent
from belay_drivers.sql.connection.uncancelled import Cancelled, run_uncancelled

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


class Usage:
    """Refuses calls that would use connections elsewhere.

    A connection of an asyncio driver and the futures of its callers belong to one loop: from another one a call would
    hang, or disturb the calls of the owner. A forked process shares sockets and file locks with its parent.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._closed = False

    def close(self) -> None:
        """Refuse every further call."""
        self._closed = True

    def check(self) -> None:
        """Raise ``StoresUnusable`` unless called where the first call was made, before ``close``."""
        if self._process != os.getpid():
            raise StoresUnusable("other_process")
        if self._closed:
            raise StoresUnusable("closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise StoresUnusable("other_loop")


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ATTEMPTS: Final = 10
"""At most so many tries of a write, each known not to have happened."""
MOST_WAITED: Final = 0.9 * limits.STATEMENT_TIMEOUT
"""Seconds from the first try after which a busy database is not asked again: one try may wait as long for a lock."""
LOST_ATTEMPTS: Final = 5
"""At most so many tries of a write when connections are lost before it is sent."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Done(Generic[T_co]):
    """The transaction ended as its body asked; ``kept`` is whether it was committed."""

    value: T_co
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Unknown(Generic[T_co]):
    """The commit was sent and its reply was lost; ``value`` is the body's result, None if there was none."""

    failure: Failure
    value: T_co | None


Body: TypeAlias = Callable[[Connection], T]
Sent: TypeAlias = Done[T] | Unknown[T]


def undone(tx: Connection, value: T) -> T:
    """Return the value, and roll this transaction back."""
    transaction = tx.get_nested_transaction() or tx.get_transaction()
    if transaction is not None:
        transaction.rollback()
    return value


class _Progress(Generic[T]):
    """The progress of a transaction; read after it failed."""

    def __init__(self) -> None:
        self.committing = False
        self.value: T | None = None


@dataclass(frozen=True, slots=True)
class Engines:
    """The connections to one database; ``direct`` is the engine of its statement channel, if that has its own."""

    write: ConnectionRunner
    read: ConnectionRunner
    direct: Engine | None = None


class Sender(ABC):
    """Sends the bodies of stores: to a database, or inside an open transaction."""

    dialect: SqlDialect

    def check_usage(self) -> None:  # noqa: B027  (only a database has connections of its own)
        """Raise ``StoresUnusable`` where the connections of the database may not be used."""

    def check_call(self) -> None:
        """Raise ``StoresUnusable``, or ``WriterError`` inside an open write on this database."""
        self.check_usage()
        refuse_inside(self)

    @property
    @abstractmethod
    def sync_engines(self) -> tuple[Engine, ...]:
        """The engines below, whose events report what is sent; the writing one first."""

    @abstractmethod
    async def send(self, body: Body[T], *, tried: int = 0) -> Sent[T]:
        """Run a body atomically; it was tried ``tried`` times already, and failed."""

    @abstractmethod
    async def read(self, body: Callable[[Connection], T]) -> T:
        """Run a body that writes nothing."""

    async def write(self, body: Body[T], resent: Body[T] | None = None, *, tried: int = 0) -> T:
        """Run a body until its outcome is known.

        If the reply to a commit was lost, ``resent`` is run instead of it: it has to find out whether the first try
        was committed. Without it the body must be idempotent.
        """
        sent = await self.send(body, tried=tried)
        for _ in range(ATTEMPTS):
            if not isinstance(sent, Unknown):
                return sent.value
            sent = await self.send(resent or body)
        if isinstance(sent, Unknown):
            raise sent.failure.error()
        return sent.value


class Database(Sender):
    """Sends bodies, retries those that are known not to have happened, and hides the text of driver errors."""

    def __init__(
        self,
        engines: Engines,
        dialect: SqlDialect,
        *,
        one_writer: asyncio.Lock | None = None,
        one_reader: asyncio.Lock | None = None,
        patience: float | None = limits.STATEMENT_TIMEOUT,
        jitter: Jitter | None = None,
        usage: Usage | None = None,
        check_present: Callable[[], None] | None = None,
    ) -> None:
        self.dialect = dialect
        self.usage = usage or Usage()
        self._check_present = check_present
        self._engines = engines
        self.write_lock = one_writer
        self.patience = patience
        self._read_lock = one_reader
        self._jitter = jitter or SystemJitter()
        self._listeners: list[Hook] = []

    def check_usage(self) -> None:
        """Raise ``StoresUnusable`` in another event loop or process, and after the end."""
        self.usage.check()

    @property
    def sync_engines(self) -> tuple[Engine, ...]:
        """The engines below."""
        ways = (self._engines.write.sync_engine, self._engines.read.sync_engine, self._engines.direct)
        return tuple(engine for engine in ways if engine is not None)

    def _check_write(self) -> None:
        """Raise what ``check_call`` does, or ``StoresUnusable`` for a database that is not there any more.

        The writes of steps do without the second: the next renewal finds it out.
        """
        self.check_call()
        if self._check_present is not None:
            self._check_present()

    async def send(self, body: Body[T], *, tried: int = 0) -> Sent[T]:
        """Run a body in one transaction; the wait for the lock can be cancelled, a sent transaction is awaited."""
        self._check_write()
        async with _locked(self.write_lock):
            return await self._run_shielded(
                lambda: self._transaction(self._engines.write, body), self.before_retry, tried
            )

    async def send_direct(self, send: Callable[[], Awaitable[T]]) -> Sent[T]:
        """Send an atomic operation over a statement channel; without a reply the value is None."""
        self._check_write()
        async with _locked(self.write_lock):
            return await self._run_shielded(lambda: self._send_whole(send), self.before_retry)

    async def send_once(self, send: Callable[[], Awaitable[T]]) -> Sent[T] | Failure:
        """The same without retries; the caller must shield it from cancellation."""
        if self.write_lock is None:
            return await self._send_whole(send)
        async with self.write_lock:
            return await self._send_whole(send)

    async def read(self, body: Callable[[Connection], T]) -> T:
        """Run a body that writes nothing."""
        return await self.look(lambda: self._engines.read.run(body))

    async def look(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read over a statement channel, with retries."""
        self.check_call()
        async with _locked(self._read_lock):
            return await self._known(lambda: self._reading(read))

    async def hold(self) -> Session:
        """A connection for writes until the caller closes it; the caller holds the write lock."""
        try:
            return await self._engines.write.hold()
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
        raise failure.undone().error()

    def on_retry(self, listener: Hook) -> None:
        """Call ``listener`` before each retry of a write; a known listener is not added twice."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    async def before_retry(self, tried: int) -> None:
        """Report a retry of a write, and wait before it."""
        for listener in self._listeners:
            listener()
        await self.pause(tried)

    async def pause(self, tried: int) -> None:
        """Wait before the next try, longer after each one."""
        longest = min(FIRST_PAUSE * 2 ** (tried - 1), LONGEST_PAUSE)
        # Real time on purpose: the wait is for another process, which does not follow a test clock.
        await asyncio.sleep(longest * (0.5 + self._jitter.draw() / 2))  # noqa: TID251

    async def _known(self, once: Callable[[], Awaitable[Done[T] | Failure]]) -> T:
        sent = await self._run_shielded(once, self.pause)
        if isinstance(sent, Unknown):
            raise sent.failure.error()
        return sent.value

    async def _run_shielded(
        self,
        once: Callable[[], Awaitable[Sent[T] | Failure]],
        again: Callable[[int], Awaitable[None]],
        tried: int = 0,
    ) -> Sent[T]:
        cancelled = Cancelled()
        ended = await run_uncancelled(self._repeat(once, again, cancelled, tried), cancelled, self.patience)
        if isinstance(ended, Failure):
            raise ended.error()
        return ended

    async def _repeat(
        self,
        once: Callable[[], Awaitable[Sent[T] | Failure]],
        again: Callable[[int], Awaitable[None]],
        cancelled: Cancelled,
        tried: int,
    ) -> Sent[T] | Failure:
        if tried:
            await again(tried)
        began = asyncio.get_running_loop().time()
        while True:
            ended = await once()
            tried += 1
            if not isinstance(ended, Failure):
                return ended
            most = LOST_ATTEMPTS if ended.lost else ATTEMPTS
            late = ended.code == "busy" and asyncio.get_running_loop().time() - began >= MOST_WAITED
            if not ended.again or cancelled.now or tried >= most or late:
                return ended
            await again(tried)

    async def _transaction(self, runner: ConnectionRunner, body: Body[T]) -> Sent[T] | Failure:
        progress: _Progress[T] = _Progress()
        try:
            return await runner.run(lambda connection: _in_transaction(connection, body, progress))
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
        if failure.lost and progress.committing:
            return Unknown(failure, progress.value)
        return failure.undone()

    async def _send_whole(self, send: Callable[[], Awaitable[T]]) -> Sent[T] | Failure:
        try:
            async with asyncio.timeout(self.patience):
                return Done(await send())
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
            may_have_arrived = failure.lost and not isinstance(error, NotSent)
        return Unknown(failure, None) if may_have_arrived else failure.undone()

    async def _reading(self, read: Callable[[], Awaitable[T]]) -> Done[T] | Failure:
        try:
            return Done(await read())
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
        if self._check_present is not None:
            # The reason why the read failed, if the database is gone.
            self._check_present()
        return failure.undone()


def _locked(lock: asyncio.Lock | None) -> AbstractAsyncContextManager[None]:
    return nullcontext() if lock is None else lock


def _in_transaction(connection: Connection, body: Body[T], progress: _Progress[T]) -> Done[T]:
    with connection.begin() as transaction:
        value = body(connection)
        kept = transaction.is_active
        progress.value = value
        progress.committing = kept
    return Done(value, kept)
