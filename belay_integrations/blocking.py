"""The client for code without an event loop: WSGI applications, threads, scripts."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from belay_core.client import Client, RunHandle
from belay_core.client.handle import Settled
from belay_core.client.starts import OnConflict
from belay_core.stores import open_stores
from belay_core.workflows.class_form import Workflow
from belay_core.workflows.definition import Definition
from belay_core.workflows.middleware import Middleware
from belay_core.workflows.registry import Registrable
from belay_integrations.loop_thread import LoopThread

In = TypeVar("In")
Out = TypeVar("Out")
P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["BlockingClient", P], R]:
    """The method of a client, as one that waits for its end."""

    def call(self: "BlockingClient", /, *args: P.args, **named: P.kwargs) -> R:
        return self.run(lambda client: method(client, *args, **named))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class BlockingRunHandle(Generic[Out]):
    """One run: its id, and its result once there is one."""

    def __init__(self, thread: LoopThread[Client], handle: RunHandle[Out]) -> None:
        self._thread = thread
        self._handle = handle
        self.run_id = handle.run_id
        """The id of the run."""
        self.created = handle.created
        """Whether the call that made the handle created the run; False if it existed already."""

    def result(self, timeout: timedelta | None = None) -> Out:
        """Wait for the end of the run and return its result; raises as ``RunHandle.result`` does."""
        return self._thread.call(lambda _: self._handle.result(timeout))

    def settled(self, timeout: timedelta | None = None) -> Settled[Out]:
        """Wait until the run has ended or waits for a person, as ``RunHandle.settled`` does."""
        return self._thread.call(lambda _: self._handle.settled(timeout))


class BlockingClient:
    """A ``Client`` whose calls wait for their end; threads may share it, and a forked process may go on using it.

    ``url`` names the database as in ``open_stores``; it is opened by the first call, in a thread with an event loop of
    its own, and closed by ``close``, by leaving the ``with`` block or with the process. ``approver`` is the identity
    under which decisions are recorded if a call names none; ``telemetry`` and ``middleware`` are those of ``Client``,
    whose middleware is called in that thread, in the context of the caller. Runs are named by their ids. Inside a
    running event loop every call raises ``InvalidTransitionError``, as it would block it: use ``Client`` there.
    """

    def __init__(
        self,
        url: str,
        *,
        approver: str | None = None,
        telemetry: bool = True,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        @asynccontextmanager
        async def opened() -> AsyncGenerator[Client]:
            async with open_stores(url) as stores:
                yield Client(stores, approver=approver, telemetry=telemetry, middleware=middleware)

        self._thread = LoopThread[Client](opened, "belay-client")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; every later call raises ``InvalidTransitionError``."""
        self._thread.close()

    def run(self, work: Callable[[Client], Coroutine[Any, Any, R]]) -> R:
        """Run several calls of the client as one coroutine in its event loop, and wait for the end."""
        return self._thread.call(work)

    @overload
    def start(
        self,
        workflow: Definition[None, Out] | type[Workflow[None, Out]] | Workflow[None, Out],
        /,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> BlockingRunHandle[Out]: ...
    @overload
    def start(
        self,
        workflow: Registrable[In, Out],
        given: In,
        /,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> BlockingRunHandle[Out]: ...
    @overload
    def start(
        self,
        workflow: str,
        given: Any = None,
        /,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> BlockingRunHandle[Any]: ...
    def start(self, workflow: Any, given: Any = None, /, **named: Any) -> BlockingRunHandle[Any]:
        """Store a run, which a worker executes; parameters and errors as for ``Client.start``."""
        handle: RunHandle[Any] = self._thread.call(lambda client: client.start(workflow, given, **named))
        return BlockingRunHandle(self._thread, handle)

    def find(
        self, idempotency_key: str, workflow: Registrable[Any, Out] | None = None
    ) -> BlockingRunHandle[Out] | None:
        """The run that was started with this key, if there is one, as ``Client.find`` returns it."""
        found = self._thread.call(lambda client: client.find(idempotency_key, workflow))
        return None if found is None else BlockingRunHandle(self._thread, found)

    def handle(self, run: str, workflow: Registrable[Any, Out] | None = None) -> BlockingRunHandle[Out]:
        """A handle of a run known by its id, as ``Client.handle`` returns it."""

        async def made(client: Client) -> RunHandle[Out]:
            return client.handle(run, workflow)

        return BlockingRunHandle(self._thread, self._thread.call(made))

    get = _blocking(Client.get)
    """As ``Client.get``."""
    list = _blocking(Client.list)
    """As ``Client.list``."""
    result = _blocking(Client.result)
    """As ``Client.result``."""
    history = _blocking(Client.history)
    """As ``Client.history``."""
    journal = _blocking(Client.journal)
    """As ``Client.journal``."""
    explain = _blocking(Client.explain)
    """As ``Client.explain``."""
    approvals = _blocking(Client.approvals)
    """As ``Client.approvals``."""
    approve = _blocking(Client.approve)
    """As ``Client.approve``."""
    reject = _blocking(Client.reject)
    """As ``Client.reject``."""
    decide = _blocking(Client.decide)
    """As ``Client.decide``."""
    resolve = _blocking(Client.resolve)
    """As ``Client.resolve``."""
    cancel = _blocking(Client.cancel)
    """As ``Client.cancel``."""
    happened = staticmethod(Client.happened)
    """As ``Client.happened``."""
    retry = _blocking(Client.retry)
    """As ``Client.retry``."""
