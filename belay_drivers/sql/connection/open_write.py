"""One open write: a transaction on its own connection, and the sender of the stores inside it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine, NestedTransaction
from typing_extensions import override

from belay_drivers.sql.connection.connection_runner import Session
from belay_drivers.sql.connection.database import Body, Done, Sender, WriteScope
from belay_drivers.sql.connection.dialect import Failure, SqlDialect
from belay_drivers.sql.connection.uncancelled import Cancelled, run_uncancelled

T = TypeVar("T")


class _RollbackFailed(Exception):
    """A savepoint could not be rolled back: the state of the transaction is not what its caller expects."""


class OpenWrite:
    """A transaction from begin to end; every statement in it is awaited, also if its caller is cancelled.

    ``lost`` is set once the transaction cannot commit any more: then nothing further is sent.
    """

    def __init__(
        self, session: Session, dialect: SqlDialect, engines: tuple[Engine, ...], patience: float | None
    ) -> None:
        self.lost: Failure | None = None
        self.engines = engines
        self.dialect = dialect
        self._session = session
        self._patience = patience
        self._turn = asyncio.Lock()

    async def do(self, work: Callable[[Connection], T]) -> T:
        """Run work on the connection. Raises ``DatabaseError`` if the database failed; the work is rolled back then."""
        async with self._turn:
            if self.lost is not None:
                raise self.lost.error()
            return await run_uncancelled(self._run(work), Cancelled(), self._patience)

    async def attempt(self, body: Body[T]) -> Done[T]:
        """Run a body in its own savepoint."""
        return await self.do(lambda connection: _in_savepoint(connection, body))

    async def commit(self) -> Failure | None:
        """Commit; returns the failure, if there was one. After a ``lost`` failure the outcome is unknown."""
        return await self._failure_of(_committed)

    async def close(self, *, committed: bool) -> None:
        """Roll back unless committed, and return the connection."""
        async with self._turn:
            broken = self.lost is not None and self.lost.lost
            if not committed and not broken:
                broken = await self._failure_of(_rolled_back) is not None
            await self._session.close(broken=broken)

    async def _run(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._session.run(work)
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
            failure = failure.undone()
            if failure.lost or isinstance(error, _RollbackFailed):
                self.lost = failure
        except BaseException:
            # Cancelled in the middle of a statement.
            self.lost = Failure("io", again=True, lost=True)
            raise
        # Raised here, so that no driver's exception is its context.
        raise failure.error()

    async def _failure_of(self, work: Callable[[Connection], None]) -> Failure | None:
        try:
            await self._session.run(work)
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
            self.lost = failure
            return failure
        return None


class SavepointSender(Sender):
    """The sender of the stores inside a write: each body is a savepoint of it, and none is repeated."""

    def __init__(self, opened: OpenWrite, scope: WriteScope) -> None:
        self.dialect = opened.dialect
        self.opened = opened
        self._scope = scope

    @property
    @override
    def sync_engines(self) -> tuple[Engine, ...]:
        return self.opened.engines

    @override
    async def send(self, body: Body[T], *, tried: int = 0) -> Done[T]:
        return await serialized(self._scope, lambda: self.opened.attempt(body))

    @override
    async def read(self, body: Callable[[Connection], T]) -> T:
        return (await self.send(body)).value


async def serialized(scope: WriteScope, work: Callable[[], Awaitable[T]]) -> T:
    """Run work in a scope of an open write, after earlier work of that scope has ended."""
    scope.check_open()
    async with scope.turn:
        # The scope may have ended during the wait.
        scope.check_open()
        return await work()


def begin(connection: Connection) -> None:
    """Begin the transaction."""
    connection.begin()


class Savepoint:
    """A savepoint of the transaction."""

    def __init__(self) -> None:
        self._opened: NestedTransaction | None = None

    def begin(self, connection: Connection) -> None:
        """Set the savepoint."""
        self._opened = connection.begin_nested()

    def release(self, _connection: Connection) -> None:
        """Keep what was written since."""
        if self._opened is not None:
            self._opened.commit()

    def roll_back(self, _connection: Connection) -> None:
        """Roll back to it, if it was set."""
        if self._opened is not None and self._opened.is_active:
            _roll_back(self._opened)


def _in_savepoint(connection: Connection, body: Body[T]) -> Done[T]:
    opened = connection.begin_nested()
    try:
        value = body(connection)
        kept = opened.is_active
        if kept:
            opened.commit()
    except BaseException as error:
        if opened.is_active:
            _roll_back(opened, error)
        raise
    return Done(value, kept)


def _roll_back(opened: NestedTransaction, because: BaseException | None = None) -> None:
    try:
        opened.rollback()
    except Exception as error:  # noqa: BLE001  raised as _RollbackFailed, with this error as its cause
        raise _RollbackFailed from because or error


def _committed(connection: Connection) -> None:
    transaction = connection.get_transaction()
    if transaction is not None:
        transaction.commit()


def _rolled_back(connection: Connection) -> None:
    transaction = connection.get_transaction()
    if transaction is not None:
        transaction.rollback()
