"""Stores in a transaction of the caller's: the safe operations, each in a savepoint, without retries."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection
from typing_extensions import override

from belay_core.errors import InvalidInput, WriterError
from belay_core.stores.absent import AbsentApprovalStore, AbsentAttemptStore, AbsentRunStore
from belay_core.stores.bundle import Stores
from belay_core.stores.notifier import Notifier
from belay_drivers.sql.connection.connection_runner import LoopSession
from belay_drivers.sql.connection.database import Body, Database, Done, WriteScope
from belay_drivers.sql.connection.open_write import OpenWrite, SavepointSender
from belay_drivers.sql.stores.approvals import SqlApprovalStore
from belay_drivers.sql.stores.base import Parts
from belay_drivers.sql.stores.runs import SqlRunStore

T = TypeVar("T")

RUN_OPERATIONS: Final = frozenset({"create", "get", "request_cancel", "start", "cancel", "find"})
APPROVAL_OPERATIONS: Final = frozenset({"decide", "find", "list"})


class JoinedSender(SavepointSender):
    """The sender of stores on a connection that the caller commits."""

    def __init__(self, connection: AsyncConnection, database: Database) -> None:
        engines = (connection.engine.sync_engine,)
        opened = OpenWrite(LoopSession(connection), database.dialect, engines, database.patience)
        # No call has this scope as its innermost one: it belongs to the connection, not to a context.
        super().__init__(opened, WriteScope(connection))

    @override
    async def send(self, body: Body[T], *, tried: int = 0) -> Done[T]:
        await self.opened.do(self.dialect.join)
        return await super().send(body, tried=tried)


def join_stores(database: Database, parts: Parts) -> Callable[[object], Stores]:
    """Makes the stores of a caller's connection to this database; raises ``InvalidInput`` for anything else."""

    def within(connection: object) -> Stores:
        speaks = database.dialect.speaks
        if not isinstance(connection, AsyncConnection) or not speaks(connection.engine.sync_engine):
            raise InvalidInput("connection", "must be an AsyncConnection of SQLAlchemy to the same kind of database")
        sender = JoinedSender(connection, database)
        # Without notifications: only the caller knows when it commits.
        notifier = Notifier()
        inside = replace(parts, database=sender, notifier=notifier, group_commit=None)
        return Stores(
            runs=AbsentRunStore.make_noop(_offered(AbsentRunStore, SqlRunStore(inside), RUN_OPERATIONS)),
            attempts=AbsentAttemptStore.make_noop(_offered(AbsentAttemptStore, None, frozenset())),
            approvals=AbsentApprovalStore.make_noop(
                _offered(AbsentApprovalStore, SqlApprovalStore(inside), APPROVAL_OPERATIONS)
            ),
            clock=parts.clock,
            ids=parts.ids,
            lease=parts.lease,
            notifier=notifier,
        )

    return within


def _offered(kind: type, store: object, names: frozenset[str]) -> dict[str, Callable[..., Awaitable[Any]]]:
    operations = (name for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction))
    return {name: getattr(store, name) if name in names else _refused(name) for name in operations}


def _refused(name: str) -> Callable[..., Awaitable[NoReturn]]:
    async def refused(*_given: object, **_named: object) -> NoReturn:
        raise WriterError("unsupported", "within", f"{name} is not offered in a transaction of the caller's")

    return refused
