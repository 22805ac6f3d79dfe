"""Every operation of the stores, each with what has to be there before it is called."""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeAlias

from belay_core.ids import ApprovalId, RunId
from belay_core.records import commands
from belay_core.records.attempt import Attempt, AttemptId, AttemptPatch, FinishAttempt
from belay_core.records.changes import START, RunFilters
from belay_core.records.owner import Lease, LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunRow, RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.waiting import Wait
from belay_core.records.workflow_run import ApprovalRecord, RunWait
from belay_core.stores import SnapshotReads, Stores, Transaction
from belay_testing.clock import ManualClock

SUBJECT = '{"amount":12}'
DIGEST = sha256(SUBJECT.encode()).hexdigest()
STALE = 30_001
HOST = "host-of-nobody"

Call: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]
"""Makes the call that is to be cancelled."""
Prepare: TypeAlias = Callable[["Desk"], Awaitable[Call]]


class Desk:
    """One run's things, all named by its label, so that no two of them meet."""

    def __init__(self, stores: Stores, clock: ManualClock, label: str) -> None:
        self.stores, self.runs, self.attempts, self.approvals = stores, stores.runs, stores.attempts, stores.approvals
        self.clock, self.label = clock, label
        self.run_id = RunId(label)

    @property
    def now(self) -> int:
        return int(self.clock.now())

    def owner(self, name: str = "a") -> OwnerId:
        return OwnerId(HOST, 7, f"{self.label}-{name}")

    async def start(self, **more: Any) -> Any:
        return await self.runs.start(commands.Start(self.run_id, f"flow-{self.label}", "1", '{"order":1}', **more))

    async def own(self) -> Lease:
        await self.start()
        return await self.acquired("a")

    async def acquired(self, name: str) -> Lease:
        [taken] = await self.runs.acquire(self.acquire(name))
        return taken.lease

    def acquire(self, name: str) -> commands.Acquire:
        return commands.Acquire(self.owner(name), (f"flow-{self.label}",), 1)

    def step(self, key: str = "fetch#1", state: StepState = StepState.SUCCEEDED, **more: Any) -> StepRecord:
        ended = state not in {StepState.RUNNING, StepState.WAITING}
        given: dict[str, Any] = {
            "kind": StepKind.STEP,
            "idempotent": True,
            "recorded": 1 if ended else None,
            "finished_at_ms": self.now if ended else None,
            "outcome": "1" if state is StepState.SUCCEEDED else None,
            **more,
        }
        name = key.partition("#")[0]
        return StepRecord(step_key=key, attempt=1, step=name, state=state, started_at_ms=self.now, **given)

    def gate(self, state: StepState = StepState.WAITING) -> StepRecord:
        return self.step("boss#1", state, kind=StepKind.GATE, outcome=None)

    def asking(self, lease: Lease, lapse_at_ms: int | None = None) -> commands.Ask:
        name = ApprovalId(f"approval-{self.label}")
        asked = ApprovalRecord(name, self.run_id, "boss#1", "boss", SUBJECT, DIGEST, self.now, lapse_at_ms)
        return commands.Ask(lease, self.gate(), asked)

    async def asked(self, lapse_at_ms: int | None = None) -> Lease:
        lease = await self.own()
        await self.approvals.ask(self.asking(lease, lapse_at_ms))
        return lease

    async def created(self) -> RunRow:
        await self.runs.create(self.run_id, '{"n":1}')
        return await self.runs.get(self.run_id)

    async def running(self) -> RunRow:
        row = await self.created()
        await self.runs.claim_and_own(self.run_id, row, self.owner(), self.now)
        return await self.runs.get(self.run_id)

    async def ended(self) -> None:
        await self.attempted()
        await self.runs.transition_owned(self.run_id, self.owner(), RunStatus.COMPLETED)

    async def waiting(self) -> None:
        await self.running()
        await self.stores.waiting.park(self.run_id, self.wait(), self.owner())

    def wait(self) -> Wait:
        return Wait("human", self.now + 10, "token", {"q": 1})

    async def claimed(self) -> tuple[RunRow, int]:
        row, at = await self.created(), self.now
        await self.runs.claim(self.run_id, row, self.owner("b"), at)
        return row, at

    def gone(self, name: str) -> LivenessEvidence:
        return LivenessEvidence(self.owner(name), self.now, "same-host-pid-dead")

    def attempt(self) -> Attempt:
        return Attempt(self.run_id, "digest", 1, "running", self.now, {})

    async def attempted(self) -> None:
        await self.running()
        await self.attempts.put(self.attempt(), self.owner())


async def start(desk: Desk) -> Call:
    return desk.start


async def acquire(desk: Desk) -> Call:
    await desk.start()
    return lambda: desk.runs.acquire(desk.acquire("a"))


async def take_over(desk: Desk) -> Call:
    await desk.own()
    desk.clock.advance(STALE)
    return lambda: desk.runs.acquire(desk.acquire("b"))


async def renew(desk: Desk) -> Call:
    lease = await desk.own()
    return lambda: desk.runs.renew(commands.Renew((lease,)))


async def record(desk: Desk) -> Call:
    command = commands.Record(await desk.own(), (desk.step(),))
    return lambda: desk.attempts.record(command)


async def record_several(desk: Desk) -> Call:
    command = commands.Record(await desk.own(), (desk.step("a#1"), desk.step("b#1", recorded=2)))
    return lambda: desk.attempts.record(command)


async def ask(desk: Desk) -> Call:
    command = desk.asking(await desk.own())
    return lambda: desk.approvals.ask(command)


async def decide(desk: Desk) -> Call:
    await desk.asked()
    command = commands.Decide(f"approval-{desk.label}", "approved", DIGEST, "ada")
    return lambda: desk.approvals.decide(command)


async def withdraw(desk: Desk) -> Call:
    command = commands.Withdraw(await desk.asked(), desk.gate(StepState.CANCELLED))
    return lambda: desk.approvals.withdraw(command)


async def lapse(desk: Desk) -> Call:
    lease = await desk.asked(desk.now + 10)
    desk.clock.advance(20)
    command = commands.Lapse(lease, f"approval-{desk.label}", desk.gate(StepState.SUCCEEDED))
    return lambda: desk.approvals.lapse(command)


async def sleep(desk: Desk) -> Call:
    nap = desk.step("nap#1", StepState.WAITING, kind=StepKind.SLEEP)
    command = commands.Sleep(await desk.own(), nap)
    return lambda: desk.attempts.sleep(command)


async def park(desk: Desk) -> Call:
    command = commands.Park(await desk.own(), RunWait("approval", "boss#1"))
    return lambda: desk.runs.park(command)


async def settle(desk: Desk) -> Call:
    command = commands.Settle(await desk.asked(), RunStatus.COMPLETED, "1")
    return lambda: desk.runs.settle(command)


async def wake(desk: Desk) -> Call:
    lease = await desk.own()
    await desk.runs.park(commands.Park(lease, RunWait("timer", "nap#1", desk.now + 10)))
    desk.clock.advance(20)
    return lambda: desk.runs.wake(commands.Wake())


async def cancel(desk: Desk) -> Call:
    await desk.start()
    return lambda: desk.runs.cancel(commands.Cancel(desk.run_id, "ada"))


async def resolve(desk: Desk) -> Call:
    lease = await desk.own()
    orphan = desk.step(state=StepState.ORPHANED, recorded=None, idempotent=False)
    await desk.attempts.record(commands.Record(lease, (orphan,)))
    await desk.runs.park(commands.Park(lease, RunWait("needs_review", "fetch#1"), '{"why":"orphan"}'))
    command = commands.Resolve(desk.run_id, commands.Happened("1"), "ada", "fetch#1")
    return lambda: desk.runs.resolve(command)


async def retry(desk: Desk) -> Call:
    lease = await desk.own()
    await desk.runs.settle(commands.Settle(lease, RunStatus.FAILED, error='{"type":"E"}'))
    return lambda: desk.runs.retry(commands.RetryRun(desk.run_id, "ada"))


def reads(call: Callable[[Desk], Coroutine[Any, Any, Any]]) -> Prepare:
    async def prepare(desk: Desk) -> Call:
        await desk.asked()
        return lambda: call(desk)

    return prepare


def contract(call: Callable[[Desk, RunRow], Coroutine[Any, Any, Any]], *, running: bool = False) -> Prepare:
    async def prepare(desk: Desk) -> Call:
        row = await (desk.running() if running else desk.created())
        return lambda: call(desk, row)

    return prepare


async def create(desk: Desk) -> Call:
    return lambda: desk.runs.create(desk.run_id, '{"n":1}')


async def create_round(desk: Desk) -> Call:
    await desk.runs.create(RunId(f"{desk.label}-parent"), "{}")
    place = CreateOptions(RunId(f"{desk.label}-parent"), f"{desk.label}-line", 1)
    return lambda: desk.runs.create(desk.run_id, "{}", place)


async def activate(desk: Desk) -> Call:
    row, at = await desk.claimed()
    return lambda: desk.runs.activate(desk.run_id, desk.owner("b"), at, row)


async def abandon_claim(desk: Desk) -> Call:
    _, at = await desk.claimed()
    return lambda: desk.runs.abandon_claim(desk.run_id, desk.owner("b"), at)


async def recover_claim(desk: Desk) -> Call:
    _, at = await desk.claimed()
    desk.clock.advance(STALE)
    return lambda: desk.runs.recover_claim(desk.run_id, desk.owner("b"), at, desk.owner("c"), desk.now, desk.gone("b"))


async def steal(desk: Desk) -> Call:
    row = await desk.running()
    desk.clock.advance(STALE)
    return lambda: desk.runs.steal(desk.run_id, row, desk.owner("b"), desk.now, desk.gone("a"))


async def acknowledge_cancel(desk: Desk) -> Call:
    await desk.running()
    await desk.runs.request_cancel(desk.run_id, desk.now)
    return lambda: desk.runs.acknowledge_cancel(desk.run_id, desk.owner(), desk.now)


def attempts(call: Callable[[Desk], Coroutine[Any, Any, Any]]) -> Prepare:
    async def prepare(desk: Desk) -> Call:
        await desk.attempted()
        return lambda: call(desk)

    return prepare


async def put(desk: Desk) -> Call:
    await desk.running()
    return lambda: desk.attempts.put(desk.attempt(), desk.owner())


async def park_bare(desk: Desk) -> Call:
    await desk.running()
    return lambda: desk.stores.waiting.park(desk.run_id, desk.wait(), desk.owner())


async def append(desk: Desk) -> Call:
    await desk.running()
    return lambda: desk.stores.journal.append(desk.run_id, desk.owner(), "mine", {"n": 1})


async def delete(desk: Desk) -> Call:
    await desk.ended()
    await desk.runs.create(RunId(f"{desk.label}-child"), "{}", CreateOptions(desk.run_id))
    child = await desk.runs.get(RunId(f"{desk.label}-child"))
    await desk.runs.claim_and_own(child.run_id, child, desk.owner(), desk.now)
    await desk.runs.transition_owned(child.run_id, desk.owner(), RunStatus.COMPLETED)
    return lambda: desk.stores.retention.delete(desk.run_id)


def waiting(call: Callable[[Desk], Coroutine[Any, Any, Any]]) -> Prepare:
    async def prepare(desk: Desk) -> Call:
        await desk.waiting()
        return lambda: call(desk)

    return prepare


async def changes_since(desk: Desk) -> Call:
    await desk.waiting()
    head = await desk.stores.changes.current()
    return lambda: desk.stores.changes.changes_since(head.source, START, 2)


async def write(desk: Desk) -> Call:
    await desk.running()

    async def body(inside: Transaction) -> None:
        await inside.attempts.put(desk.attempt(), desk.owner())
        await inside.waiting.park(desk.run_id, desk.wait(), desk.owner())
        await inside.journal.append(desk.run_id, desk.owner(), "mine", {"n": 1})
        await inside.runs.transition_owned(desk.run_id, desk.owner(), RunStatus.SUSPENDED)

    return lambda: desk.stores.write(body)


async def write_within(desk: Desk) -> Call:
    await desk.running()

    async def within(deeper: Transaction) -> None:
        await deeper.journal.append(desk.run_id, desk.owner(), "mine", {"n": 1})

    async def body(inside: Transaction) -> None:
        await inside.attempts.put(desk.attempt(), desk.owner())
        await inside.write(within)
        await inside.write(within)

    return lambda: desk.stores.write(body)


async def write_refused(desk: Desk) -> Call:
    await desk.running()

    class Refused(Exception):
        pass

    async def within(deeper: Transaction) -> None:
        await deeper.journal.append(desk.run_id, desk.owner(), "mine", {"n": 1})
        raise Refused

    async def body(inside: Transaction) -> None:
        with suppress(Refused):
            await inside.write(within)
        await inside.runs.transition_owned(desk.run_id, desk.owner(), RunStatus.COMPLETED)
        raise Refused

    async def call() -> None:
        with suppress(Refused):
            await desk.stores.write(body)

    return call


def standing(read: Callable[[SnapshotReads, RunId], Coroutine[Any, Any, Any]]) -> Prepare:
    async def prepare(desk: Desk) -> Call:
        await desk.created()

        async def call() -> None:
            async with desk.stores.snapshot() as reads:
                await read(reads, desk.run_id)
                await read(reads, desk.run_id)

        return call

    return prepare


OPERATIONS: dict[str, Prepare] = {
    "runs.start": start,
    "runs.acquire": acquire,
    "runs.acquire (taking over)": take_over,
    "runs.renew": renew,
    "attempts.record": record,
    "attempts.record (several)": record_several,
    "approvals.ask": ask,
    "approvals.decide": decide,
    "approvals.withdraw": withdraw,
    "approvals.lapse": lapse,
    "attempts.sleep": sleep,
    "runs.park": park,
    "runs.settle": settle,
    "runs.wake": wake,
    "runs.cancel": cancel,
    "runs.resolve": resolve,
    "runs.retry": retry,
    "attempts.history": reads(lambda desk: desk.attempts.history(commands.History((desk.run_id,)))),
    "runs.find": reads(lambda desk: desk.runs.find(desk.run_id)),
    "runs.list": reads(lambda desk: desk.runs.list(commands.ListRuns(limit=2))),
    "approvals.list": reads(lambda desk: desk.approvals.list(commands.ListApprovals(desk.run_id))),
    "approvals.find": reads(lambda desk: desk.approvals.find(f"approval-{desk.label}")),
    "runs.running_owners": reads(lambda desk: desk.runs.running_owners(HOST)),
    "runs.create": create,
    "runs.create (a round)": create_round,
    "runs.get": contract(lambda desk, _: desk.runs.get(desk.run_id)),
    "runs.lineage": contract(lambda desk, _: desk.runs.lineage(desk.run_id)),
    "runs.latest_round": contract(lambda desk, _: desk.runs.latest_round(desk.run_id)),
    "runs.request_cancel": contract(lambda desk, _: desk.runs.request_cancel(desk.run_id, desk.now)),
    "runs.request_cancel_lineage": contract(lambda desk, _: desk.runs.request_cancel_lineage(desk.run_id, desk.now)),
    "runs.acknowledge_cancel": acknowledge_cancel,
    "runs.claim": contract(lambda desk, row: desk.runs.claim(desk.run_id, row, desk.owner(), desk.now)),
    "runs.claim_and_own": contract(lambda desk, row: desk.runs.claim_and_own(desk.run_id, row, desk.owner(), desk.now)),
    "runs.activate": activate,
    "runs.abandon_claim": abandon_claim,
    "runs.recover_claim": recover_claim,
    "runs.steal": steal,
    "runs.heartbeat": contract(lambda desk, _: desk.runs.heartbeat(desk.run_id, desk.owner(), desk.now), running=True),
    "runs.reconfirm": contract(lambda desk, _: desk.runs.reconfirm(desk.run_id, desk.owner(), desk.now), running=True),
    "runs.transition_owned": contract(
        lambda desk, _: desk.runs.transition_owned(desk.run_id, desk.owner(), RunStatus.COMPLETED, "{}"), running=True
    ),
    "attempts.put": put,
    "attempts.get": attempts(lambda desk: desk.attempts.get(AttemptId(desk.run_id, "digest", 1))),
    "attempts.finish": attempts(
        lambda desk: desk.attempts.finish(FinishAttempt(desk.run_id, "digest", 1, "done", desk.now), desk.owner())
    ),
    "attempts.heartbeat": attempts(
        lambda desk: desk.attempts.heartbeat(desk.run_id, "digest", 1, desk.owner(), desk.now, {"at": 1})
    ),
    "attempts.patch": attempts(
        lambda desk: desk.attempts.patch(AttemptId(desk.run_id, "digest", 1), AttemptPatch(meta={"b": 2}), desk.owner())
    ),
    "waiting.park": park_bare,
    "waiting.wake": waiting(lambda desk: desk.stores.waiting.wake(desk.run_id)),
    "waiting.waiting": waiting(lambda desk: desk.stores.waiting.waiting(desk.run_id)),
    "waiting.waiting_runs": waiting(lambda desk: desk.stores.waiting.waiting_runs("human")),
    "journal.append": append,
    "journal.read": waiting(lambda desk: desk.stores.journal.read(desk.run_id)),
    "journal.ownership": waiting(lambda desk: desk.stores.journal.ownership(desk.run_id)),
    "changes.current": waiting(lambda desk: desk.stores.changes.current()),
    "changes.changes_since": changes_since,
    "changes.snapshot": waiting(lambda desk: desk.stores.changes.snapshot([desk.run_id])),
    "changes.list_runs": waiting(lambda desk: desk.stores.changes.list_runs(RunFilters(RunStatus.RUNNING), 2)),
    "changes.cancellation": waiting(lambda desk: desk.stores.changes.cancellation(desk.run_id)),
    "retention.delete": delete,
    "snapshots.get": standing(lambda reads, run_id: reads.get(run_id)),
    "snapshots.lineage": standing(lambda reads, run_id: reads.lineage(run_id)),
    "snapshots.latest_round": standing(lambda reads, run_id: reads.latest_round(run_id)),
    "writer.write": write,
    "writer.write (within a write)": write_within,
    "writer.write (refused)": write_refused,
}
