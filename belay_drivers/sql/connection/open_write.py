"""One open write: a transaction on a connection of its own, and how stores send through it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine, NestedTransaction
from typing_extensions import override

from belay_drivers.sql.connection.connection_runner import Session
from belay_drivers.sql.connection.database import Body, Done, Scope, Sender
from belay_drivers.sql.connection.dialect import Failure, SqlDialect
from belay_drivers.sql.connection.uncancelled import Cancelled, run_uncancelled

T = TypeVar("T")


class _Stranded(Exception):
    """A savepoint could not be rolled back: what is left of the transaction is not what its user believes."""


class OpenWrite:
    """A transaction from its beginning to its end; what is sent in it is waited for, whoever is cancelled.

    ``lost`` is set once nothing of it can be kept any more: then nothing further is sent.
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
        """Do work on the connection. Raises ``DatabaseError`` where the database failed; nothing of the work stays."""
        async with self._turn:
            if self.lost is not None:
                raise self.lost.error()
            return await run_uncancelled(self._carried(work), Cancelled(), self._patience)

    async def attempt(self, body: Body[T]) -> Done[T]:
        """Do work in a savepoint of its own."""
        return await self.do(lambda connection: _in_savepoint(connection, body))

    async def commit(self) -> Failure | None:
        """Commit; where that failed, how. A ``lost`` failure may have happened or not."""
        return await self._failure_of(_committed)

    async def close(self, *, committed: bool) -> None:
        """Roll back what is not committed, and give the connection back."""
        async with self._turn:
            broken = self.lost is not None and self.lost.lost
            if not committed and not broken:
                broken = await self._failure_of(_rolled_back) is not None
            await self._session.close(broken=broken)

    async def _carried(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._session.run(work)
        except Exception as error:
            failure = self.dialect.explain(error)
            if failure is None:
                raise
            failure = failure.undone()
            if failure.lost or isinstance(error, _Stranded):
                self.lost = failure
        except BaseException:
            # Cut off in the middle of a statement.
            self.lost = Failure("io", again=True, lost=True)
            raise
        # Out here, so that no driver's exception is a context of this one.
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
    """What the stores inside a write send through: each body is a savepoint of it, and none is repeated."""

    def __init__(self, opened: OpenWrite, scope: Scope) -> None:
        self.dialect = opened.dialect
        self.opened = opened
        self._scope = scope

    @property
    @override
    def sync_engines(self) -> tuple[Engine, ...]:
        return self.opened.engines

    @override
    async def send(self, body: Body[T], *, tried: int = 0) -> Done[T]:
        return await in_turn(self._scope, lambda: self.opened.attempt(body))

    @override
    async def read(self, body: Callable[[Connection], T]) -> T:
        return (await self.send(body)).value


async def in_turn(scope: Scope, work: Callable[[], Awaitable[T]]) -> T:
    """Do work at a level of an open write, when what was begun there before is over."""
    scope.admit()
    async with scope.turn:
        # It may have ended while we waited.
        scope.admit()
        return await work()


def begun(connection: Connection) -> None:
    """Begin the transaction."""
    connection.begin()


class Savepoint:
    """A place in the transaction that can be gone back to."""

    def __init__(self) -> None:
        self._opened: NestedTransaction | None = None

    def begin(self, connection: Connection) -> None:
        """Mark the place."""
        self._opened = connection.begin_nested()

    def release(self, _connection: Connection) -> None:
        """Keep what was written since."""
        if self._opened is not None:
            self._opened.commit()

    def roll_back(self, _connection: Connection) -> None:
        """Go back to it, if it was reached at all."""
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
    except Exception as error:  # noqa: BLE001  raised as what it comes to; its cause says what it was
        raise _Stranded from because or error


def _committed(connection: Connection) -> None:
    transaction = connection.get_transaction()
    if transaction is not None:
        transaction.commit()


def _rolled_back(connection: Connection) -> None:
    transaction = connection.get_transaction()
    if transaction is not None:
        transaction.rollback()
