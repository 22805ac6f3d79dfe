"""Keeping one run owned while work goes on, and stopping in time when that can no longer be sure (8.4).

Two tasks watch each other's back. One sends heartbeats. The other only looks at how long ago the last confirmed one
was sent, so that a heartbeat that hangs, fails or comes back late changes nothing about when the work ends: after
the tolerance (19 s), and one interval (1 s) at most in which the store is asked whether the run is ours all the same.
A peer may take the run over from 30 001 ms on.

The deadline is judged by the boot-time clock and by the wall clock, whichever is ahead: the one counts through a
suspended machine, the other is what peers judge the stored heartbeat by.
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
"""Told for how many milliseconds the lease had not been confirmed."""

_LOG: Final = logging.getLogger("belay")
_LEASE: Final = LeaseTimes()
_ENDING: Final[set["asyncio.Task[Any]"]] = set()
"""Tasks that were cancelled and are not waited for; an event loop alone would not keep them from being collected."""


class OwnershipStore(Ownership, Reconfirmation, Protocol):
    """A run store, as far as the loop needs it."""


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
    """Keep the run owned; never returns, and ends by cancelling itself when the run may no longer be ours.

    That is, it raises ``asyncio.CancelledError`` though nobody cancelled it, and a task around it ends as cancelled
    (which a ``TaskGroup`` takes no notice of: ``owned`` is there to run it beside its work). It does so at once when
    the store answers that the run is another's, and when the lease lapses: then ``on_lapse`` is run first, once, for
    an interval at most. ``on_reconfirm`` is run when a lease in doubt was confirmed after all; it has what is left
    of the renewed tolerance, and a receipt that fails or takes longer lapses the lease.

    Cancelled from outside it ends when the write in flight has; when it cancels itself it does not wait for that,
    since the work has to end first and a store may guard what it has sent.
    """
    await _Keeping(store, run_id, owner, clock, lease, on_reconfirm, on_lapse).run()


async def owned(work: Coroutine[Any, Any, T], keeping: Coroutine[Any, Any, Never]) -> T:
    """Do the work while a ``heartbeat_loop`` keeps its run; whichever ends first cancels the other.

    The answer, or the error, is the work's. Raises ``asyncio.CancelledError`` where ownership ended first; the work
    has ended then, and whatever it answered to being cancelled is dropped.
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
class _Moment:
    """One moment by both clocks."""

    elapsed: float
    stamp: float


class _Keeping:
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
        self._confirmed = _Moment(clock.elapsed(), clock.now())
        self._failing = False
        self._over = False
        """Set as soon as the loop is to end: nobody reconfirms or lapses any more."""
        self._expiry = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> Never:
        """Pulse and watch until one of them ends."""
        both = {self._begin(self._pulse()), self._begin(self._watch())}
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
                # No failure of the store or of a receipt: a clock that gave up, an answer that is none.
                task.result()
        raise asyncio.CancelledError

    async def _pulse(self) -> Never:
        """Send heartbeats."""
        try:
            while True:
                await self._sleep(self._interval)
                if self._over or self._left() <= 0:
                    await self._expire()
                else:
                    await self._beat()
        finally:
            self._over = True

    async def _beat(self) -> None:
        sent = self._moment()
        answer: HeartbeatOutcome | None = None
        try:
            answer = await self._store.heartbeat(self._run_id, self._owner, int(sent.stamp))
        except Exception as error:  # noqa: BLE001  (any failure may pass; the deadline decides how long it may last)
            self._fail(error)
        if self._over:
            # The lease has lapsed meanwhile; its receipt is not to be cut short by what came too late.
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

    async def _watch(self) -> Never:
        """Enforce the deadline, whatever the heartbeats do."""
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
        """Have the lease confirmed after its deadline, or let it lapse; both tasks may come here, one at a time."""
        async with self._expiry:
            if self._over:
                raise asyncio.CancelledError
            left = self._left()
            if left > 0:
                return
            unconfirmed = int(self._tolerance - left)
            cause = await self._doubt(unconfirmed)
            if cause is not None:
                await self._lapse(unconfirmed, cause)

    async def _doubt(self, unconfirmed: Millis) -> str | None:
        """Ask the store whose run it is; None where it is ours, and who wanted to know of the doubt was told."""
        sent = self._moment()
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
        except Exception as error:  # noqa: BLE001  (a store or a receipt that fails confirms nothing)
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
            except Exception as error:  # noqa: BLE001  (the work has to end all the same)
                _LOG.error("the receipt of a lapsed lease failed", extra={**about, "cause": _code_of(error)})
        raise asyncio.CancelledError

    def _confirm(self, sent: _Moment) -> None:
        """What counts is when the sign of life was sent, not when it was answered."""
        before = self._confirmed
        self._confirmed = _Moment(max(before.elapsed, sent.elapsed), max(before.stamp, sent.stamp))
        self._failing = False

    def _left(self) -> float:
        """Milliseconds until the deadline."""
        unseen = self._clock.elapsed() - self._confirmed.elapsed
        return self._tolerance - max(unseen, self._clock.now() - self._confirmed.stamp)

    def _moment(self) -> _Moment:
        return _Moment(self._clock.elapsed(), reading(self._clock))

    async def _sleep(self, ms: float) -> None:
        """Sleep, an interval at most: a machine that was suspended has to look at the clock again."""
        await self._clock.sleep(min(ms, self._interval) / 1000)

    async def _pass(self, ms: float) -> None:
        due = self._clock.elapsed() + ms
        while (left := due - self._clock.elapsed()) > 0:
            await self._sleep(left)

    async def _within(self, ms: float, work: Coroutine[Any, Any, T]) -> T:
        """The answer of the work; ``TimeoutError`` once the injected clock has moved on by ``ms`` without one.

        The work is cancelled then. Work that cancels itself, or a caller who is cancelled, is no timeout.
        """
        working, alarm = self._begin(work), self._begin(self._pass(ms))
        try:
            await asyncio.wait({working, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            alarm.result()
            raise TimeoutError
        finally:
            working.cancel()
            alarm.cancel()

    def _begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Read, so that an answer nobody waits for any more is not reported as forgotten.
            task.exception()

    async def _end_all(self) -> None:
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)


def _code_of(error: Exception) -> str:
    return error.code if isinstance(error, StoreError) else type(error).__name__
