"""The worker: executes the runs of its workflows (kernel 21)."""

import asyncio
import contextvars
import signal
import sys
import threading
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, cast

from belay_core.client import Client, observe
from belay_core.engine.dispatcher import Dispatcher
from belay_core.engine.log_lines import StoreTrouble
from belay_core.engine.services import Services, Watchers
from belay_core.engine.settings import Settings
from belay_core.errors import InvalidTransitionError, StoreAbsent
from belay_core.jitter import Jitter, SystemJitter
from belay_core.stores.absent import AbsentApprovalStore
from belay_core.stores.bundle import Stores
from belay_core.workflows.middleware import Middleware
from belay_core.workflows.registry import Registrable, catalogue

_DEFAULT = Settings()


class Worker:
    """Executes runs of its workflows while its ``async with`` block is entered.

    It executes at most ``concurrency`` runs at a time, and without notifications it polls for due runs every ``poll``
    seconds. Steps that are not async share ``threads`` threads. Leaving acquires no further run, lets running steps end
    within ``grace`` while their leases are renewed, and releases the runs to other workers. With
    ``background=False`` it has no background tasks: a test executes runs by hand (``belay_testing.drive.run_ready``).
    Raises ``StoreAbsent`` if the stores lack the engine's part, and ``InvalidInput`` for a setting that breaks its
    rule.
    """

    def __init__(  # noqa: PLR0913  (each is a setting of its own, given by name)
        self,
        stores: Stores,
        definitions: Iterable[Registrable[Any, Any]],
        *,
        concurrency: int = _DEFAULT.concurrency,
        grace: timedelta = _DEFAULT.grace,
        poll: float = _DEFAULT.poll,
        threads: int = _DEFAULT.threads,
        telemetry: bool = True,
        middleware: Sequence[Middleware] = (),
        jitter: Jitter | None = None,
        background: bool = True,
    ) -> None:
        if isinstance(stores.approvals, AbsentApprovalStore):
            raise StoreAbsent("a worker needs stores with an engine, and this driver has none")
        patience = {} if background else {"linger": 0.0, "quiet": 0.0}
        settings = Settings(concurrency=concurrency, grace=grace, poll=poll, threads=threads, **patience)
        watched, watchers = observe(stores, telemetry=telemetry, middleware=middleware)
        self.client = Client(stores, telemetry=telemetry, middleware=middleware)
        """A client over the same stores, for this process; it has no approver."""
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="belay-step")
        services = Services(
            watched, settings, jitter or SystemJitter(), self._pool, Watchers(watchers), StoreTrouble(stores.clock)
        )
        self.dispatcher = Dispatcher(services, catalogue(definitions))
        """Acquires and executes runs; ``belay_testing.drive`` drives it by hand."""
        self._background = background
        self._entered = False
        self._working: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop in which ``run`` runs."""
        self._stopped = asyncio.Event()
        self._stops = 0

    async def __aenter__(self) -> Self:
        if self._entered:
            raise InvalidTransitionError("a worker is entered once; make another one")
        self._entered = True
        if self._background:
            # In a context of its own: the trace and the baggage of its start would be those of everything it executes.
            self._working = asyncio.create_task(self.dispatcher.work_for_ever(), context=contextvars.Context())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Release every run; the worker acquires no more."""
        self.dispatcher.leave()
        try:
            if self._working is not None:
                await self._working
        finally:
            self.dispatcher.drop()
            self._pool.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Let ``run`` leave; a second call ends the grace. May be called from any thread, and from a signal handler."""
        if self._loop is None:
            self._stops += 1
        else:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._stops += 1
        if self._stops > 1:
            self.dispatcher.end_grace()
        self._stopped.set()

    def _signalled(self, _number: int, _frame: object) -> None:
        self.stop()

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Execute runs until SIGTERM, SIGINT or ``stop``, then leave; a second one ends the grace.

        ``ready`` is called once signals are handled. In a thread other than the main one there are none, and ``stop``
        is the only way. Raises ``InvalidTransitionError`` for a worker without background tasks.
        """
        if not self._background:
            raise InvalidTransitionError("a worker with background=False is driven by hand; run needs background tasks")
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            self._handle_signals(stack, self._loop)
            await stack.enter_async_context(self)
            if self._stops:
                self._stopped.set()
            if ready is not None:
                ready()
            stopped = asyncio.ensure_future(self._stopped.wait())
            stack.callback(stopped.cancel)
            await asyncio.wait({stopped, cast("asyncio.Task[None]", self._working)}, return_when=FIRST_COMPLETED)

    def _handle_signals(self, stack: AsyncExitStack, loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            if sys.platform == "win32":
                # The loops there know no signals; the interpreter calls its own handlers between two callbacks.
                stack.callback(signal.signal, number, signal.signal(number, self._signalled))
            else:
                loop.add_signal_handler(number, self._stop)
                stack.callback(loop.remove_signal_handler, number)
