"""Keep the lease of one run while work is running, and stop the work in time when the lease is in doubt (8.4).

There are two tasks. One sends heartbeats. The other only checks how long ago the last confirmed one was sent, so that
a heartbeat that hangs, fails or returns late does not delay the end of the work: it ends after the tolerance (19 s),
and at most one interval (1 s) in which the store is asked whether this process still owns the run. A peer may take the
run over from 30 001 ms on.

The deadline uses the boot-time clock and the wall clock, whichever is ahead: the first counts through a suspended
machine, the second is what peers compare the stored heartbeat with.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Never, Protocol, TypeAlias, TypeVar, assert_never

from belay_core.clock import Clock, Millis, reading
from belay_core.errors import StoreError
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.stores.bundle import LeaseTimes
from belay_core.stores.run_contract import FenceLost, HeartbeatOutcome, NotFound, Ownership, Reconfirmation, Updated

T = TypeVar("T")

Receipt: TypeAlias = Callable[[Millis], Coroutine[Any, Any, object]]
"""A callback; its argument is the milliseconds for which the lease had not been confirmed."""

_LOG: Final = logging.getLogger("belay")
_LEASE: Final = LeaseTimes()
_ENDING: Final[set["asyncio.Task[Any]"]] = set()
"""Tasks that were cancelled and are not awaited; an event loop holds tasks only weakly."""


class OwnershipStore(Ownership, Reconfirmation, Protocol):
    """The part of a run store that the loop needs."""


async def heartbeat_loop(
    store: OwnershipStore,
    run_id: RunId,
    owner: OwnerId,
    clock: Clock,
    *,
    on_reconfirm: Receipt | None = None,
    on_lapse: Receipt | None = None,
    lease: LeaseTimes = _LEASE,
) -> Never:
    """Send heartbeats for a run; never returns, and cancels itself when this process may no longer own the run.

    That is, it raises ``asyncio.CancelledError`` without a cancellation from outside, and its task ends as cancelled
    (which a ``TaskGroup`` ignores: use ``owned`` to run it together with the work). It does so immediately when the
    store answers that another owner has the run, and when the lease lapses: then ``on_lapse`` runs first, once, for
    an interval at most. ``on_reconfirm`` runs when a lease in doubt was confirmed after all; it has the rest of the
    renewed tolerance, and if it fails or takes longer, the lease lapses.

    Cancelled from outside, it ends after the write in flight; when it cancels itself it does not wait for that write,
    since the work has to end first and a store may shield what it has sent.
    """
    await _LeaseKeeper(store, run_id, owner, clock, lease, on_reconfirm, on_lapse).run()


async def owned(work: Coroutine[Any, Any, T], keeping: Coroutine[Any, Any, Never]) -> T:
    """Run the work together with a ``heartbeat_loop``; whichever ends first cancels the other.

    The result, or the error, is that of the work. Raises ``asyncio.CancelledError`` if ownership ended first; the
    work has ended then, and its own result is dropped.
    """
    working, kept = asyncio.ensure_future(work), asyncio.ensure_future(keeping)
    done = False
    try:
        await asyncio.wait({working, kept}, return_when=asyncio.FIRST_COMPLETED)
        done = working.done()
    finally:
        working.cancel()
        kept.cancel()
        await asyncio.gather(working, kept, return_exceptions=True)
    return working.result() if done else kept.result()


@dataclass(frozen=True, slots=True)
class _ClockReading:
    """One reading of both clocks, in milliseconds."""

    elapsed: float
    stamp: float


class _LeaseKeeper:
    """The state of one loop."""

    def __init__(
        self,
        store: OwnershipStore,
        run_id: RunId,
        owner: OwnerId,
        clock: Clock,
        lease: LeaseTimes,
        on_reconfirm: Receipt | None,
        on_lapse: Receipt | None,
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._owner = owner
        self._clock = clock
        self._interval = lease.interval_ms
        self._tolerance = lease.tolerance_ms
        self._on_reconfirm = on_reconfirm
        self._on_lapse = on_lapse
        self._confirmed = _ClockReading(clock.elapsed(), clock.now())
        self._failing = False
        self._over = False
        """Set as soon as the loop is to end: no reconfirmation and no lapse follows."""
        self._expiry = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> Never:
        """Run both tasks until one of them ends."""
        both = {self._create_task(self._send_heartbeats()), self._create_task(self._enforce_deadline())}
        try:
            ended, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._over = True
            await self._end_all()
            raise
        for task in self._tasks:
            task.cancel()
            _ENDING.add(task)
            task.add_done_callback(_ENDING.discard)
        for task in ended:
            if not task.cancelled():
                # No failure of the store or of a callback: a clock that failed, an unknown outcome.
                task.result()
        raise asyncio.CancelledError

    async def _send_heartbeats(self) -> Never:
        """Send heartbeats."""
        try:
            while True:
                await self._sleep(self._interval)
                if self._over or self._left() <= 0:
                    await self._expire()
                else:
                    await self._send_heartbeat()
        finally:
            self._over = True

    async def _send_heartbeat(self) -> None:
        sent = self._read_clocks()
        answer: HeartbeatOutcome | None = None
        try:
            answer = await self._store.heartbeat(self._run_id, self._owner, int(sent.stamp))
        except Exception as error:  # noqa: BLE001  (any failure may be temporary; the deadline bounds it)
            self._fail(error)
        if self._over:
            # The lease has lapsed meanwhile; a late reply must not cancel its callback.
            await self._expire()
        match answer:
            case Updated():
                self._confirm(sent)
            case FenceLost() | NotFound():
                raise asyncio.CancelledError
            case None:
                return
            case _:
                assert_never(answer)

    def _fail(self, error: Exception) -> None:
        if not self._failing and not self._over:
            _LOG.warning("run heartbeat write failed", extra={"run_id": self._run_id, "code": _code_of(error)})
        self._failing = True

    async def _enforce_deadline(self) -> Never:
        """End at the deadline, whatever the heartbeats do."""
        try:
            while True:
                left = self._left()
                if left <= 0:
                    await self._expire()
                else:
                    await self._sleep(left)
        finally:
            self._over = True

    async def _expire(self) -> None:
        """Confirm the lease after its deadline, or let it lapse; both tasks may call this, one at a time."""
        async with self._expiry:
            if self._over:
                raise asyncio.CancelledError
            left = self._left()
            if left > 0:
                return
            unconfirmed = int(self._tolerance - left)
            cause = await self._reconfirm(unconfirmed)
            if cause is not None:
                await self._lapse(unconfirmed, cause)

    async def _reconfirm(self, unconfirmed: Millis) -> str | None:
        """Reconfirm the lease and call ``on_reconfirm``; returns None on success, else the cause of the lapse."""
        sent = self._read_clocks()
        try:
            reconfirming = self._store.reconfirm(self._run_id, self._owner, int(sent.stamp))
            answer = await self._within(self._interval, reconfirming)
            if not isinstance(answer, Updated):
                return type(answer).__name__
            self._confirm(sent)
            left = self._left()
            if left <= 0:
                return "confirmed too late"
            if self._on_reconfirm is not None:
                await self._within(left, self._on_reconfirm(unconfirmed))
        except Exception as error:  # noqa: BLE001  (a store or a callback that fails confirms nothing)
            return _code_of(error)
        return None

    async def _lapse(self, unconfirmed: Millis, cause: str) -> Never:
        if self._over:
            raise asyncio.CancelledError
        self._over = True
        about = {"run_id": self._run_id, "unconfirmed_ms": unconfirmed, "cause": cause}
        _LOG.warning("run lease lapsed; interrupting owned work", extra=about)
        if self._on_lapse is not None:
            try:
                await self._within(self._interval, self._on_lapse(unconfirmed))
            except Exception as error:  # noqa: BLE001  (the work has to end in any case)
                _LOG.error("the receipt of a lapsed lease failed", extra={**about, "cause": _code_of(error)})
        raise asyncio.CancelledError

    def _confirm(self, sent: _ClockReading) -> None:
        """A heartbeat counts from when it was sent, not from its reply."""
        before = self._confirmed
        self._confirmed = _ClockReading(max(before.elapsed, sent.elapsed), max(before.stamp, sent.stamp))
        self._failing = False

    def _left(self) -> float:
        """Milliseconds until the deadline."""
        unseen = self._clock.elapsed() - self._confirmed.elapsed
        return self._tolerance - max(unseen, self._clock.now() - self._confirmed.stamp)

    def _read_clocks(self) -> _ClockReading:
        return _ClockReading(self._clock.elapsed(), reading(self._clock))

    async def _sleep(self, ms: float) -> None:
        """Sleep, an interval at most: after a suspend of the machine the clock has to be read again."""
        await self._clock.sleep(min(ms, self._interval) / 1000)

    async def _sleep_for(self, ms: float) -> None:
        due = self._clock.elapsed() + ms
        while (left := due - self._clock.elapsed()) > 0:
            await self._sleep(left)

    async def _within(self, ms: float, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work; raises ``TimeoutError`` if the injected clock has advanced by ``ms`` before.

        The work is cancelled then. Work that cancels itself, or a cancelled caller, is no timeout.
        """
        working, alarm = self._create_task(work), self._create_task(self._sleep_for(ms))
        try:
            await asyncio.wait({working, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            alarm.result()
            raise TimeoutError
        finally:
            working.cancel()
            alarm.cancel()

    def _create_task(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Read, so that asyncio does not report it as never retrieved.
            task.exception()

    async def _end_all(self) -> None:
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)


def _code_of(error: Exception) -> str:
    return error.code if isinstance(error, StoreError) else type(error).__name__
