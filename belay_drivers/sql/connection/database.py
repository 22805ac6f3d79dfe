"""How statements reach a database: one transaction a write, told apart by what is known of its end.

A body is a plain function of a ``Connection``; it may run more than once, against the state committed meanwhile.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Final, Generic, Optional, Self, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine

from belay_core import limits
from belay_core.errors import WriterError
from belay_core.jitter import Jitter, SystemJitter
from belay_core.stores.writer import Hook, Writer
from belay_drivers.sql.connection.connection_runner import ConnectionRunner, Session
from belay_drivers.sql.connection.dialect import Failure, SqlDialect
from belay_drivers.sql.connection.statement_channel import NotSent
from belay_drivers.sql.connection.uncancelled import Cancelled, run_uncancelled

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


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ATTEMPTS: Final = 10
"""How often a write is sent at most, when each time is known not to have happened."""
LOST_ATTEMPTS: Final = 5
"""How often a write is sent at most when connections are lost before it can be sent."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Done(Generic[T_co]):
    """The transaction ended as its body wanted; ``kept`` is whether what it wrote stays."""

    value: T_co
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Unknown(Generic[T_co]):
    """The commit was sent and no reply came; ``value`` is what would have been answered, None where nobody knows."""

    failure: Failure
    value: T_co | None


Body: TypeAlias = Callable[[Connection], T]
Sent: TypeAlias = Done[T] | Unknown[T]


def undone(tx: Connection, value: T) -> T:
    """Give the value back, and let nothing stay of what this transaction wrote."""
    transaction = tx.get_nested_transaction() or tx.get_transaction()
    if transaction is not None:
        transaction.rollback()
    return value


class _Progress(Generic[T]):
    """How far a transaction came; read after it failed."""

    def __init__(self) -> None:
        self.committing = False
        self.value: T | None = None


@dataclass(frozen=True, slots=True)
class Engines:
    """The ways to one database; ``straight`` is the engine of its wire, where that has one of its own."""

    write: ConnectionRunner
    read: ConnectionRunner
    straight: Engine | None = None


class Sender(ABC):
    """What stores send bodies through: a database, or a transaction that is open on one."""

    dialect: SqlDialect

    @property
    @abstractmethod
    def sync_engines(self) -> tuple[Engine, ...]:
        """The engines below, whose events tell what is sent; the writing one first."""

    @abstractmethod
    async def send(self, body: Body[T], *, tried: int = 0) -> Sent[T]:
        """Run a body so that all it writes stays, or nothing; ``tried`` times it was sent already, and failed."""

    @abstractmethod
    async def read(self, body: Callable[[Connection], T]) -> T:
        """Run a body that writes nothing."""

    async def write(self, body: Body[T], resent: Body[T] | None = None, *, tried: int = 0) -> T:
        """Run a body to a known end.

        When no reply came to a commit, ``resent`` is run instead of it: it has to find out whether the first one
        happened. Without it the body has to be one that may happen twice.
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
    """Sends bodies, retries what is known not to have happened, and hides what drivers say."""

    def __init__(
        self,
        engines: Engines,
        dialect: SqlDialect,
        *,
        one_writer: asyncio.Lock | None = None,
        one_reader: asyncio.Lock | None = None,
        patience: float | None = limits.STATEMENT_TIMEOUT,
        jitter: Jitter | None = None,
    ) -> None:
        self.dialect = dialect
        self._engines = engines
        self.write_lock = one_writer
        self.patience = patience
        self._read_lock = one_reader
        self._jitter = jitter or SystemJitter()
        self._listeners: list[Hook] = []

    @property
    def sync_engines(self) -> tuple[Engine, ...]:
        """The engines below."""
        ways = (self._engines.write.sync_engine, self._engines.read.sync_engine, self._engines.straight)
        return tuple(engine for engine in ways if engine is not None)

    async def send(self, body: Body[T], *, tried: int = 0) -> Sent[T]:
        """Run a body in one transaction; waiting for a turn can be cancelled, being sent is waited for."""
        admit_outside(self)
        async with _turn(self.write_lock):
            return await self._outlast(lambda: self._transaction(self._engines.write, body), self.before_retry, tried)

    async def send_direct(self, send: Callable[[], Awaitable[T]]) -> Sent[T]:
        """Send something over a wire that is done whole or not at all; the value where no reply came is None."""
        admit_outside(self)
        async with _turn(self.write_lock):
            return await self._outlast(lambda: self._straight(send), self.before_retry)

    async def send_once(self, send: Callable[[], Awaitable[T]]) -> Sent[T] | Failure:
        """The same, and nothing is tried again. Whoever calls is not to be cancelled."""
        if self.write_lock is None:
            return await self._straight(send)
        async with self.write_lock:
            return await self._straight(send)

    async def read(self, body: Callable[[Connection], T]) -> T:
        """Run a body that writes nothing."""
        return await self.look(lambda: self._engines.read.run(body))

    async def look(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read over a wire."""
        admit_outside(self)
        async with _turn(self._read_lock):
            return await self._known(lambda: self._reading(read))

    async def hold(self) -> Session:
        """A connection to write on for as long as the caller keeps it; the caller has the turn."""
        try:
            return await self._engines.write.hold()
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
        raise failure.undone().error()

    def on_retry(self, listener: Hook) -> None:
        """Call ``listener`` whenever a write is going to be repeated; one that is known already is not added."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    async def before_retry(self, tried: int) -> None:
        """Tell that a write is going to be repeated, and give what stood in its way time to go."""
        for listener in self._listeners:
            listener()
        await self.pause(tried)

    async def pause(self, tried: int) -> None:
        """Wait before the next try, the longer the more there were."""
        longest = min(FIRST_PAUSE * 2 ** (tried - 1), LONGEST_PAUSE)
        # Real time on purpose: what is waited for is another process, which no test clock moves.
        await asyncio.sleep(longest * (0.5 + self._jitter.draw() / 2))  # noqa: TID251

    async def _known(self, once: Callable[[], Awaitable[Done[T] | Failure]]) -> T:
        sent = await self._outlast(once, self.pause)
        if isinstance(sent, Unknown):
            raise sent.failure.error()
        return sent.value

    async def _outlast(
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
        while True:
            ended = await once()
            tried += 1
            if not isinstance(ended, Failure):
                return ended
            most = LOST_ATTEMPTS if ended.lost else ATTEMPTS
            if not ended.again or cancelled.now or tried >= most:
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

    async def _straight(self, send: Callable[[], Awaitable[T]]) -> Sent[T] | Failure:
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
        return failure.undone()


def _turn(lock: asyncio.Lock | None) -> AbstractAsyncContextManager[None]:
    return nullcontext() if lock is None else lock


def _in_transaction(connection: Connection, body: Body[T], progress: _Progress[T]) -> Done[T]:
    with connection.begin() as transaction:
        value = body(connection)
        kept = transaction.is_active
        progress.value = value
        progress.committing = kept
    return Done(value, kept)
