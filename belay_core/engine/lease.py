"""Holding a run: the lease, what is known of it, and the writes made under it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NoReturn, TypeVar, assert_never

from belay_core.clock import Millis, Signal, event_or_time
from belay_core.engine.log_lines import StoreTrouble, lease_lapsed, loop_blocked
from belay_core.engine.services import Services
from belay_core.errors import BelayError, StoreError, refuses_content
from belay_core.records import commands
from belay_core.records.owner import Lease
from belay_core.records.step_record import StepRecord
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.stores.approvals import LapseOutcome, NoSuchApproval
from belay_core.stores.attempts import Conflict, ExistingSame, Inserted, Recorded, RecordOutcome, RunNotFound
from belay_core.stores.bundle import Stores
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import Renewed, RenewOutcome

_MOST_ATTEMPTS: Final = 128
"""Attempts of one command at most, where several share it."""
_MOST_CHARACTERS: Final = 1 << 18
"""Length of the texts of one command at most, where several share it."""


class QueuedWrite:
    """A write that waits for its turn; ``attempts`` are what it records, none where it is another command."""

    __slots__ = ("alone", "answered", "attempts")

    def __init__(self, attempts: tuple[StepRecord, ...]) -> None:
        self.attempts = attempts
        self.alone = not attempts
        """Whether it shares its command with no other."""
        self.answered: asyncio.Future[RecordOutcome | None] = asyncio.get_running_loop().create_future()
        """None says that it is its turn; an answer, that another has taken its attempts along."""

    @property
    def has_turn(self) -> bool:
        """Whether it was given the turn."""
        answered = self.answered
        if not answered.done() or answered.cancelled() or answered.exception() is not None:
            return False
        return answered.result() is None


class WriteQueue:
    """The turn to write, and who waits for it in the order in which they came."""

    def __init__(self) -> None:
        self.taken = False
        """Whether a write is under way; its sender passes the turn on."""
        self.waiting: deque[QueuedWrite] = deque()

    async def wait(self, attempts: tuple[StepRecord, ...] = ()) -> RecordOutcome | None:
        """Come back with the turn, or with the answer to these attempts where who had it took them along."""
        waiting = QueuedWrite(attempts)
        self.waiting.append(waiting)
        try:
            return await waiting.answered
        except asyncio.CancelledError:
            if waiting.has_turn:
                self.pass_on()
            raise

    def pass_on(self) -> None:
        """Give the turn to the next one; those who were cancelled want none."""
        while self.waiting:
            waiting = self.waiting.popleft()
            if not waiting.answered.done():
                waiting.answered.set_result(None)
                return
        self.taken = False

    def take_along(self, attempts: tuple[StepRecord, ...]) -> list[QueuedWrite]:
        """Those who are next and whose attempts may share a command with these; each is to be answered or put back."""
        found: list[QueuedWrite] = []
        if not self.waiting:
            return found
        room = _MOST_ATTEMPTS - len(attempts)
        left = _MOST_CHARACTERS - _size(attempts)
        while self.waiting:
            waiting = self.waiting[0]
            if not waiting.answered.done():
                room -= len(waiting.attempts)
                left -= _size(waiting.attempts)
                if waiting.alone or room < 0 or left < 0:
                    break
                found.append(waiting)
            self.waiting.popleft()
        return found

    def put_back(self, found: Sequence[QueuedWrite]) -> None:
        """They are next again, each with a command of its own."""
        for waiting in found:
            waiting.alone = True
        self.waiting.extendleft(reversed(found))


def _size(attempts: tuple[StepRecord, ...]) -> int:
    return sum(len(each.outcome or "") + len(each.error or "") + len(each.meta) for each in attempts)


A = TypeVar("A")
C = TypeVar("C")

_FIRST_WAIT = 0.05
_LONGEST_WAIT = 1.0


class LeaseLost(BelayError):
    """The run is no longer ours: nothing more may be written, and its work is to end."""


class LeaseHandle:
    """One lease and its state; ``signal`` is set whenever the run executor should look."""

    def __init__(self, services: Services, lease: Lease, cancel_requested_at_ms: Millis | None) -> None:
        self.lease = lease
        self.signal = asyncio.Event()
        self.ending = False
        """Set while a park or a settle is under way: a renewal that finds the lease gone is no loss then."""
        self.cancel_requested = cancel_requested_at_ms is not None
        self.pending_signal_ms: Millis | None = None
        self.seen_ms: Millis | None = None
        self.confirmed_at = services.stores.clock.elapsed()
        """The boot-time moment at which the last confirmed sign of life was sent."""
        self.lost = False
        """Whether nothing more may be written under this lease."""
        self._services = services
        self._queue = WriteQueue()
        self._over = Signal()
        """Set once it is lost."""

    @property
    def has_pending_signal(self) -> bool:
        """Whether somebody has left something to look at since the history was read."""
        return self.pending_signal_ms is not None and self.pending_signal_ms != self.seen_ms

    def lose(self) -> None:
        """The lease is gone, or can no longer be trusted."""
        if not self.ending:
            self.let_go()

    def let_go(self) -> None:
        """The lease is given up, whatever is under way."""
        self.lost = True
        self._over.set()
        self.signal.set()

    def renewed(self, sent_at: float, answer: RenewOutcome) -> None:
        """Take in the answer to a renewal sent at this boot-time moment."""
        match answer:
            case Renewed():
                self._confirm(sent_at, answer)
            case FenceLost() | RunNotFound():
                self.lose()
            case _:
                assert_never(answer)

    async def renew(self) -> None:
        """Ask for news, and renew the lease by the way."""
        sent_at = self._services.stores.clock.elapsed()
        command = commands.Renew((self.lease,))
        (answer,) = await self.send(self._services.stores.runs.renew, command)
        self.renewed(sent_at, answer)

    async def record(self, *attempts: StepRecord) -> None:
        """Store attempts, together with those that wait meanwhile. Raises ``LeaseLost`` where the lease is gone."""
        queue, answer = self._queue, None
        if queue.taken:
            answer = await queue.wait(attempts)
        else:
            queue.taken = True
        if answer is None:
            try:
                others = queue.take_along(attempts) if queue.waiting else ()
                if others:
                    answer = await self._stored_together(attempts, others)
                else:
                    record = self._services.stores.attempts.record
                    answer = await self.send(record, commands.Record(self.lease, attempts))
            finally:
                if queue.waiting:
                    queue.pass_on()
                else:
                    queue.taken = False
        if type(answer) is not Recorded:
            self._fail()

    async def ask(self, attempt: StepRecord, approval: ApprovalRecord) -> None:
        """Open a gate. Raises ``LeaseLost`` where the lease is gone."""
        command = commands.Ask(self.lease, attempt, approval)
        answer = await self.write(self._services.stores.approvals.ask, command)
        if not isinstance(answer, (Inserted, ExistingSame)):
            self._fail()

    async def begin_sleep(self, attempt: StepRecord) -> None:
        """Begin a sleep. Raises ``LeaseLost`` where the lease is gone."""
        command = commands.Sleep(self.lease, attempt)
        answer = await self.write(self._services.stores.attempts.sleep, command)
        if not isinstance(answer, (Inserted, ExistingSame)):
            self._fail()

    async def withdraw(self, attempt: StepRecord) -> None:
        """Close a gate its author no longer wants. Raises ``LeaseLost`` where the lease is gone."""
        command = commands.Withdraw(self.lease, attempt)
        answer = await self.write(self._services.stores.approvals.withdraw, command)
        if not isinstance(answer, Recorded):
            self._fail()

    async def lapse(self, approval_id: str, attempt: StepRecord) -> LapseOutcome:
        """Close a gate nobody decided in time. Raises ``LeaseLost`` where the lease is gone."""
        command = commands.Lapse(self.lease, approval_id, attempt)
        answer = await self.write(self._services.stores.approvals.lapse, command)
        if isinstance(answer, (FenceLost, RunNotFound, Conflict, NoSuchApproval)):
            self._fail()
        return answer

    async def write(self, give: Callable[[C], Awaitable[A]], command: C) -> A:
        """Give an owned command when those given before it have been answered, as ``send`` does.

        What is recorded of a run is committed in the order of its places, also where one of the writes has to be
        repeated: a replay delivers by place what the first play delivered by commit.
        """
        if self._queue.taken:
            await self._queue.wait()
        self._queue.taken = True
        try:
            return await self.send(give, command)
        finally:
            self._queue.pass_on()

    async def send(self, give: Callable[[C], Awaitable[A]], command: C) -> A:
        """Give a command, again and again while the database cannot be reached, as long as the lease may be ours.

        Raises ``LeaseLost`` once it may not.
        """
        clock = self._services.stores.clock
        wait = _FIRST_WAIT
        while not self.lost:
            sent_at = clock.elapsed()
            try:
                answer = await give(command)
            except StoreError as error:
                if error.code != "persistence_failed" or refuses_content(error):
                    raise
                self._services.trouble.failed("a write", error)
            else:
                if self._services.trouble.since is not None:
                    self._services.trouble.succeeded()
                if isinstance(answer, Recorded):
                    self._confirm(sent_at, answer)
                return answer
            pause = wait * (0.5 + self._services.jitter.draw() / 2)
            await event_or_time(self._over, clock, pause)
            wait = min(wait * 2, _LONGEST_WAIT)
        raise LeaseLost

    def _stored(self, attempts: tuple[StepRecord, ...]) -> Awaitable[RecordOutcome]:
        return self.send(self._services.stores.attempts.record, commands.Record(self.lease, attempts))

    async def _stored_together(self, attempts: tuple[StepRecord, ...], others: Sequence[QueuedWrite]) -> RecordOutcome:
        """Store attempts and those of others in one command, and tell the others; what is refused goes one by one."""
        answer: RecordOutcome | None = None
        try:
            answer = await self._stored((*attempts, *(attempt for each in others for attempt in each.attempts)))
        except StoreError:
            # It may be that of one of them alone, and none is stored.
            pass
        except BaseException:
            for each in others:
                if not each.answered.done():
                    each.answered.set_exception(LeaseLost())
            raise
        if answer is None or isinstance(answer, Conflict):
            self._queue.put_back(others)
            return await self._stored(attempts)
        for each in others:
            if not each.answered.done():
                each.answered.set_result(answer)
        return answer

    def _confirm(self, sent_at: float, answer: Renewed | Recorded) -> None:
        self.confirmed_at = max(self.confirmed_at, sent_at)
        if answer.pending_signal_ms is not None and answer.pending_signal_ms != self.pending_signal_ms:
            self.pending_signal_ms = answer.pending_signal_ms
            self.signal.set()
        if answer.cancel_requested_at_ms is not None and not self.cancel_requested:
            self.cancel_requested = True
            self.signal.set()

    def _fail(self) -> NoReturn:
        # A conflict under a lease that holds means that records and play disagree; going on could only make it worse.
        self.lose()
        raise LeaseLost


class LeaseKeeper:
    """Renews the leases of all runs in hand together, and lets go of those that were not confirmed in time."""

    def __init__(
        self,
        stores: Stores,
        handles: Callable[[], Iterable[LeaseHandle]],
        trouble: StoreTrouble,
        executing: Callable[[], Sequence[str]],
    ) -> None:
        self._stores = stores
        self._handles = handles
        self._trouble = trouble
        self._executing = executing
        """The async steps that are executing, by run and key."""

    async def renew_for_ever(self) -> None:
        """Renew once an interval."""
        while True:
            await self._stores.clock.sleep(self._stores.lease.interval_ms / 1000)
            await self.renew()

    async def watch_for_ever(self) -> None:
        """Enforce the deadlines once an interval, or when the first of them is due; a renewal that hangs is no help."""
        while True:
            left = min(self.release_lapsed(), self._stores.lease.interval_ms)
            began = self._stores.clock.elapsed()
            await self._stores.clock.sleep(left / 1000)
            loop_blocked(self._stores.clock.elapsed() - began - left, self._executing())

    async def renew(self) -> None:
        """Renew every lease in hand, in one statement."""
        handles = [each for each in self._handles() if not each.lost]
        if not handles:
            return
        sent_at = self._stores.clock.elapsed()
        try:
            answers = await self._stores.runs.renew(commands.Renew(tuple(each.lease for each in handles)))
        except StoreError as error:
            self._trouble.failed("lease renewal", error)
            return
        self._trouble.succeeded()
        for handle, answer in zip(handles, answers, strict=True):
            handle.renewed(sent_at, answer)

    def release_lapsed(self) -> float:
        """Let go of runs whose lease was not confirmed within the tolerance; milliseconds until the next may lapse."""
        now, tolerance = self._stores.clock.elapsed(), self._stores.lease.tolerance_ms
        left: float = tolerance
        for handle in self._handles():
            rest = handle.confirmed_at + tolerance - now
            if rest > 0:
                left = min(left, rest)
            elif not handle.lost:
                lease_lapsed(handle.lease)
                handle.let_go()
        return left


async def keep(keeper: LeaseKeeper) -> None:
    """Renew and watch, independently of each other, until cancelled."""
    async with asyncio.TaskGroup() as both:
        both.create_task(keeper.renew_for_ever())
        both.create_task(keeper.watch_for_ever())
