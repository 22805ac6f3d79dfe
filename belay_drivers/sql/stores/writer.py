"""The writer: several store operations in one transaction (specs, run store 3)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from typing_extensions import override

from belay_core.errors import DatabaseError, WriterError
from belay_core.stores.writer import Hook, Transaction, Writer
from belay_drivers.sql.connection.database import ATTEMPTS, LOST_ATTEMPTS, Database, Done, Sender, WriteScope, innermost
from belay_drivers.sql.connection.dialect import Failure, Fate, Mark
from belay_drivers.sql.connection.error_translation import code_of, is_transient, translate_errors
from belay_drivers.sql.connection.open_write import OpenWrite, Savepoint, SavepointSender, begin, serialized
from belay_drivers.sql.connection.uncancelled import Cancelled, run_uncancelled
from belay_drivers.sql.statements.rows import Undecodable

T = TypeVar("T")

Inside: TypeAlias = Callable[[Sender, Writer], Transaction]
"""Makes the stores of an open write from their sender and the writer of their scope."""

_LOG: Final = logging.getLogger("belay")


@dataclass(frozen=True, slots=True)
class _RetryableAttempt:
    """A try that was rolled back; ``error`` is raised after ``most`` tries."""

    error: Exception
    most: int


class SqlWriter(Writer):
    """The write boundary of one database.

    Outermost writes of this process are serialized by a lock, which each takes before a connection and keeps until its
    last try. On SQLite it is the write lock of the database.
    """

    def __init__(self, database: Database, inside: Inside, queued: Callable[[], int]) -> None:
        self._database = database
        self._inside = inside
        self._queued = queued
        self._permit = database.write_lock or asyncio.Lock()

    @override
    async def write(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        self._database.check_usage()
        scope = innermost(self._database)
        if scope is not None and scope.writer is not None:
            return await scope.writer.write(body)
        async with self._permit:
            return await self._repeated(body)

    @override
    def after_commit(self, hook: Hook) -> bool:
        scope = innermost(self._database)
        if scope is None:
            return False
        scope.hooks.append(hook)
        return True

    @override
    def on_retry(self, listener: Hook) -> None:
        self._database.on_retry(listener)

    @property
    @override
    def queued(self) -> int:
        return self._queued()

    async def _repeated(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        tried = 0
        while True:
            ended = await self._attempt(body)
            tried += 1
            if isinstance(ended, Done):
                return ended.value
            if tried >= ended.most:
                raise ended.error
            await self._database.before_retry(tried)

    async def _attempt(self, body: Callable[[Transaction], Awaitable[T]]) -> Done[T] | _RetryableAttempt:
        opening = _TransactionStart(self._database)
        scope = WriteScope(self._database)
        try:
            opened = await opening.begin()
            value = await self.do_inside(opened, scope, body)
        except BaseException as error:
            await run_uncancelled(opening.given_up(), Cancelled(), None)
            if not isinstance(error, Exception):
                raise
            return _repeatable(error, opening.lost)
        # Shielded from cancellation from here on: what was sent is awaited, and its outcome reported.
        return await run_uncancelled(self._committed(opened, scope, value), Cancelled(), None)

    async def do_inside(self, opened: OpenWrite, scope: WriteScope, body: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``body`` in a scope of an open write, and wait for all work that it started there."""
        level = _NestedWriter(self, opened, scope)
        scope.writer = level
        with scope:
            value = await body(self._inside(SavepointSender(opened, scope), level))
        async with scope.turn:
            return value

    async def _committed(self, opened: OpenWrite, scope: WriteScope, value: T) -> Done[T] | _RetryableAttempt:
        try:
            mark = await opened.do(self._database.dialect.mark)
        except DatabaseError as error:
            await opened.close(committed=False)
            return _repeatable(_failed(error), opened.lost)
        failure = await opened.commit()
        await opened.close(committed=failure is None)
        if failure is not None and not await self._arrived(failure, mark):
            return _repeatable(_failed(failure.undone().error()), failure)
        _run(scope.hooks)
        return Done(value)

    async def _arrived(self, failure: Failure, mark: Mark | None) -> bool:
        """Whether a commit with this failure has taken place nevertheless."""
        if not failure.lost:
            return False
        if mark is None:
            # Nothing was written, so nothing can be missing.
            return True
        fate = await self._fate(mark)
        if fate == "unknown":
            cause = {"category": failure.code, "cause": failure.error()}
            detail = "the commit was sent, and the database cannot tell what became of it"
            raise WriterError("commit_unknown", "write", detail, cause)
        return fate == "committed"

    async def _fate(self, mark: Mark) -> Fate:
        dialect = self._database.dialect
        for tried in range(1, ATTEMPTS + 1):
            fate: Fate = "in progress"
            with suppress(DatabaseError):
                fate = await self._database.read(lambda tx: dialect.fate(tx, mark))
            if fate != "in progress":
                return fate
            await self._database.pause(tried)
        return "unknown"


class _NestedWriter(Writer):
    """The writer inside an open write: its writes are savepoints, without retries."""

    def __init__(self, writer: SqlWriter, opened: OpenWrite, scope: WriteScope) -> None:
        self._writer = writer
        self._opened = opened
        self._scope = scope

    @override
    async def write(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        return await serialized(self._scope, lambda: self._nested(body))

    @override
    def after_commit(self, hook: Hook) -> bool:
        if self._scope.over:
            return False
        self._scope.hooks.append(hook)
        return True

    @override
    def on_retry(self, listener: Hook) -> None:
        self._writer.on_retry(listener)

    async def _nested(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        point = Savepoint()
        within = WriteScope(self._scope.database, self._scope)
        try:
            await translate_errors(self._opened.do(point.begin), _failed)
            value = await self._writer.do_inside(self._opened, within, body)
        except BaseException:
            await run_uncancelled(self._roll_back_to(point), Cancelled(), None)
            raise
        await run_uncancelled(self._released(point, within), Cancelled(), None)
        return value

    async def _roll_back_to(self, point: Savepoint) -> None:
        # If that fails the whole transaction is lost, which the next operation in it reports.
        with suppress(DatabaseError):
            await self._opened.do(point.roll_back)

    async def _released(self, point: Savepoint, within: WriteScope) -> None:
        await translate_errors(self._opened.do(point.release), _failed)
        self._scope.hooks.extend(within.hooks)


class _TransactionStart:
    """The start of a transaction; it may be abandoned at any time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._opened: OpenWrite | None = None

    @property
    def lost(self) -> Failure | None:
        """The failure that lost the transaction, if there was one."""
        return None if self._opened is None else self._opened.lost

    async def begin(self) -> OpenWrite:
        """Begin the transaction."""
        return await translate_errors(run_uncancelled(self._begin(), Cancelled(), self._database.patience), _failed)

    async def given_up(self) -> None:
        """Roll it back."""
        if self._opened is not None:
            await self._opened.close(committed=False)

    async def _begin(self) -> OpenWrite:
        database = self._database
        line = await database.hold()
        self._opened = OpenWrite(line, database.dialect, database.sync_engines, database.patience)
        await self._opened.do(begin)
        return self._opened


def _repeatable(error: Exception, lost: Failure | None) -> _RetryableAttempt:
    """The try that ended with this error; raises it if a retry cannot help."""
    if not is_transient(error):
        raise error
    return _RetryableAttempt(error, LOST_ATTEMPTS if lost is not None and lost.lost else ATTEMPTS)


def _failed(failure: DatabaseError | Undecodable) -> WriterError:
    known = failure if isinstance(failure, DatabaseError) else DatabaseError("unknown")
    cause = {"category": known.code, "cause": known}
    return WriterError(code_of(known), "write", "database operation failed", cause)


def _run(hooks: list[Hook]) -> None:
    for hook in hooks:
        try:
            hook()
        except Exception as error:  # noqa: BLE001  the write is committed, and the other hooks have to run
            # Without its text, which may hold values.
            _LOG.error("after_commit: a hook failed with %s", type(error).__name__)
