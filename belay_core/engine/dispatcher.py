"""A worker's inside: takes runs, has them drained side by side, and leaves in good order (kernel 7 and 21)."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, cast

from belay_core.clock import Signal, event_or_time
from belay_core.engine.lease import LeaseHandle, LeaseKeeper, keep
from belay_core.engine.log_lines import LOG, code_of
from belay_core.engine.run_executor import RunExecutor
from belay_core.engine.services import Services
from belay_core.errors import StoreError, StoresUnusable
from belay_core.ids import RunId
from belay_core.ownership.identity import is_gone, this_process
from belay_core.records import commands
from belay_core.records.commands import RunHistory
from belay_core.records.owner import OwnerId
from belay_core.stores.runs import Acquired
from belay_core.workflows.definition import Definition

_LONGEST_WAIT = 5.0
_LATELY_MS = 1_000
"""How long after runs were taken more of them are expected."""
_LAST_WRITES = 3.0
"""Seconds that releasing runs may take after the grace."""
_LAST_CALLS = 0.5
"""Seconds that calls of the stores which are under way are waited for, where nothing may be written any more."""
_QUICKER = 4
"""How many times as often is looked for them meanwhile."""


class Dispatcher:
    """Runs the workflows of one worker."""

    def __init__(self, services: Services, definitions: Mapping[str, Definition[Any, Any]]) -> None:
        self._services = services
        self._stores = services.stores
        self._definitions = definitions
        self._identity = this_process(services.stores.ids)
        self._executors: dict[RunExecutor, asyncio.Task[None]] = {}
        self._of_run: defaultdict[RunId, list[RunExecutor]] = defaultdict(list)
        self._freed = Signal()
        self._more = False
        """Whether the last look brought all it asked for: more may wait, of which nobody will tell."""
        self._leaving = asyncio.Event()
        self._grace_over = Signal()
        self._looked_for_dead = float("-inf")
        self._woke = float("-inf")
        self._took = float("-inf")
        self.keeper = LeaseKeeper(self._stores, self.handles, services.trouble, self._executing)

    @property
    def in_hand(self) -> int:
        """How many runs this worker has in hand."""
        return len(self._executors)

    @property
    def _room(self) -> int:
        return self._services.settings.concurrency - len(self._executors)

    def handles(self) -> list[LeaseHandle]:
        """The runs in hand."""
        return [each.handle for each in self._executors]

    def _executing(self) -> list[str]:
        """The async steps that are executing, by run and key."""
        return [step for each in self._executors for step in each.executing]

    async def work_for_ever(self) -> None:
        """Take and drain runs until ``leave`` is called; nothing is worked on where nobody keeps the leases."""
        keeping = asyncio.create_task(keep(self.keeper))
        working = asyncio.create_task(self._until_left())
        try:
            await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
            await (working if working.done() else keeping)
        except BaseException as error:
            if isinstance(error, Exception):
                LOG.exception("the worker broke off; its runs are left to their leases")
            await self._break_off()
            unusable = _unusable(error)
            if unusable is not None:
                raise unusable from None
            raise
        finally:
            keeping.cancel()
            working.cancel()
            await _ended((keeping, working), _LAST_CALLS)

    async def _until_left(self) -> None:
        taking = asyncio.create_task(self._take_until_leaving())
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait({taking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            await _ended((taking,), _LAST_CALLS)
            if taking.done():
                taking.result()
            await self._let_go()
        finally:
            taking.cancel()
            leaving.cancel()
            await _ended((taking,), _LAST_CALLS)

    def leave(self) -> None:
        """Take no further run, and let go of those in hand as soon as their running steps have ended."""
        self._leaving.set()
        self._freed.set()

    def end_grace(self) -> None:
        """Wait no longer for running steps."""
        self._grace_over.set()

    async def take(self, *, waking: bool = True) -> int:
        """Take what is ready, as far as there is room, ``waking`` what is due before; how many runs were taken."""
        room = self._room
        if room <= 0 or self._leaving.is_set():
            return 0
        if waking:
            await self._stores.runs.wake(commands.Wake())
        owner = self._identity.owner(self._stores.ids)
        command = commands.Acquire(owner, tuple(self._definitions), room, await self._dead())
        acquired = await self._stores.runs.acquire(command)
        self._more = len(acquired) == room
        if acquired:
            self._took = self._stores.clock.elapsed()
        for each, history in await self._histories(acquired):
            self._begin(each, history)
        return len(acquired)

    async def finish_all(self) -> None:
        """Come back when no run is in hand any more."""
        while self._executors:
            await asyncio.wait(list(self._executors.values()))

    async def _take_until_leaving(self) -> None:
        wait = self._services.settings.poll
        with self._stores.notifier.listening(None, self._freed):
            while not self._leaving.is_set():
                self._freed.clear()
                try:
                    await self.take(waking=self._notifier())
                    self._services.trouble.succeeded()
                    wait = self._pause()
                    if self._more and self._room > 0:
                        # Some have ended while more were taken.
                        self._freed.set()
                except StoreError as error:
                    self._services.trouble.failed("looking for runs", error)
                    wait = min(_LONGEST_WAIT, wait * 2 * (0.5 + self._services.jitter.draw()))
                await event_or_time(self._freed, self._stores.clock, wait)

    def _pause(self) -> float:
        """Seconds until the next look: fewer where work has come lately and nobody here would be told of more."""
        poll = self._services.settings.poll
        if self._stores.notifier.hears_peers or self._stores.clock.elapsed() - self._took > _LATELY_MS:
            return poll
        return poll / _QUICKER

    def _notifier(self) -> bool:
        """Whether what is due is looked for: once a poll, as who looks oftener was told of what is ready already."""
        now = self._stores.clock.elapsed()
        if now - self._woke < self._services.settings.poll * 1000:
            return False
        self._woke = now
        return True

    async def _let_go(self) -> None:
        for executor in self._executors:
            executor.leave()
        grace = asyncio.ensure_future(
            event_or_time(self._grace_over, self._stores.clock, self._services.settings.grace.total_seconds())
        )
        done = asyncio.ensure_future(self.finish_all())
        try:
            await asyncio.wait({grace, done}, return_when=asyncio.FIRST_COMPLETED)
            for executor in self._executors:
                executor.end_grace()
            await asyncio.wait({done}, timeout=_LAST_WRITES)
        finally:
            grace.cancel()
            done.cancel()
        if self._executors:
            LOG.error("%d runs could not be released in time; they are left to their leases", len(self._executors))
            await self._break_off()

    async def _break_off(self) -> None:
        """Write nothing more, and wait but briefly for calls of the stores that are under way."""
        self.drop()
        executing = tuple(self._executors.values())
        try:
            await _ended(executing, _LAST_CALLS)
        finally:
            for task in executing:
                task.cancel()

    def drop(self) -> None:
        """Write nothing more: nobody keeps the leases of the runs in hand, and others will take them."""
        for handle in self.handles():
            handle.let_go()

    async def _dead(self) -> tuple[OwnerId, ...]:
        """The owners on this host that are proven gone, looked for once an interval."""
        now = self._stores.clock.elapsed()
        if now - self._looked_for_dead < self._stores.lease.interval_ms:
            return ()
        self._looked_for_dead = now
        owners = await self._stores.runs.running_owners(self._identity.host_id)
        return tuple(owner for owner in owners if is_gone(owner, self._identity))

    async def _histories(self, acquired: tuple[Acquired, ...]) -> list[tuple[Acquired, RunHistory | None]]:
        """The history of each run taken, read in one go; None where that fails, and each has to be read alone.

        Nothing is recorded yet of a run that nobody has owned before.
        """
        found = {each.run.run_id: RunHistory(each.run, (), ()) for each in acquired if each.lease.epoch == 1}
        earlier = tuple(each.run for each in acquired if each.run.run_id not in found)
        if earlier:
            try:
                command = commands.History(tuple(run.run_id for run in earlier), earlier)
                read = await self._stores.attempts.history(command)
            except StoreError:
                read = ()
            found |= {history.run.run_id: history for history in read}
        return [(each, found.get(each.run.run_id)) for each in acquired]

    def _begin(self, acquired: Acquired, history: RunHistory | None) -> None:
        executor = RunExecutor(self._services, acquired, history, self._definitions[acquired.run.workflow or ""])
        together = self._of_run[acquired.lease.run_id]
        self._executors[executor] = asyncio.create_task(
            self._execute_run(executor, [self._executors[each] for each in together])
        )
        if self._leaving.is_set():
            # Taken by a call that was under way.
            executor.leave()
        for earlier in together:
            earlier.handle.lose()
        together.append(executor)

    async def _execute_run(self, executor: RunExecutor, earlier: "list[asyncio.Task[None]]") -> None:
        """Drain a run; where this very worker had lost it, once its earlier play of it has ended."""
        facts: dict[str, object] = {"run_id": executor.handle.lease.run_id}
        try:
            if earlier:
                await asyncio.wait(earlier)
            await executor.run()
        except StoreError as error:
            LOG.error(
                "run %s could not be closed: %s", facts["run_id"], code_of(error), extra={**facts, "code": error.code}
            )
        except Exception as error:  # noqa: BLE001  (a defect of one run must not be one of the worker)
            LOG.exception("a run broke off; it is left to its lease", extra={**facts, "code": type(error).__name__})
        finally:
            if self._room <= 0:
                self._freed.set()
            del self._executors[executor]
            run_id = executor.handle.lease.run_id
            self._of_run[run_id].remove(executor)
            if not self._of_run[run_id]:
                del self._of_run[run_id]


def _unusable(error: BaseException) -> StoresUnusable | None:
    """The refusal of the stores among the errors of both tasks: the remedy is in its message."""
    if isinstance(error, StoresUnusable):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    return next(filter(None, map(_unusable, group.exceptions)), None)


async def _ended(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> None:
    """Wait for the end of tasks, at most so long, however often the caller is cancelled meanwhile.

    What goes on after that is a call of the stores, whose outcome nobody needs any more.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    cancelled: asyncio.CancelledError | None = None
    while (pending := [task for task in tasks if not task.done()]) and (left := until - loop.time()) > 0:
        try:
            await asyncio.wait(pending, timeout=left)
        except asyncio.CancelledError as request:
            cancelled = request
    try:
        if cancelled is not None:
            raise cancelled
    finally:
        del cancelled  # breaks a reference cycle with this frame
