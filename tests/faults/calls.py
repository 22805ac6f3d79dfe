"""Every write of the stores, each as a scene: what is there before it, the call itself, and whether others act then."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.attempt import Attempt, AttemptId, AttemptPatch, AttemptStoreOptions, FinishAttempt
from belay_core.records.owner import Lease, LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus, TransitionGuard
from belay_core.records.step_record import StepKind, StepState
from belay_core.stores.runs import RunParked
from belay_testing.conformance.kit import Kit

Call: TypeAlias = Callable[[], Awaitable[Any]]
Scene: TypeAlias = Callable[[Kit], Awaitable[Call]]

RUN = RunId("run-1")
BARE = RunId("bare")
OWNER = OwnerId("h", 1, "n")
OTHER = OwnerId("h", 2, "m")
PENDING = RunSnapshot(RunStatus.PENDING)
STALE = 30_001

SCENES: dict[str, Scene] = {}


def scene(made: Scene) -> Scene:
    SCENES[made.__name__] = made
    return made


# ---------------------------------------------------------------- the engine's


@scene
async def start(kit: Kit) -> Call:
    return partial(kit.start, idempotency_key="k")


@scene
async def start_known_by_key(kit: Kit) -> Call:
    await kit.start("run-0", idempotency_key="k")
    return partial(kit.start, idempotency_key="j")


@scene
async def acquire(kit: Kit) -> Call:
    await kit.start()
    await kit.start("run-2", priority=5)
    return partial(kit.acquire, owner=kit.owner("fresh"))


@scene
async def acquire_from_the_dead(kit: Kit) -> Call:
    lease = await kit.own()
    return partial(kit.acquire, owner=kit.owner("fresh"), dead=(lease.owner,))


@scene
async def acquire_some_in_order(kit: Kit) -> Call:
    for number, priority in enumerate((0, 7, 3)):
        await kit.start(f"run-{number}", priority=priority)
    await kit.acquire(limit=1)
    kit.clock.advance(STALE)
    return partial(kit.acquire, owner=kit.owner("fresh"))


@scene
async def record(kit: Kit) -> Call:
    lease = await kit.own()
    return partial(kit.record, lease, kit.step())


@scene
async def record_again(kit: Kit) -> Call:
    lease = await kit.own()
    await kit.record(lease, kit.step())
    return partial(kit.record, lease, kit.step())


@scene
async def record_conflict(kit: Kit) -> Call:
    lease = await kit.own()
    await kit.record(lease, kit.step())
    return partial(kit.record, lease, kit.step(outcome="2"))


@scene
async def record_over_running(kit: Kit) -> Call:
    lease = await kit.own()
    await kit.record(lease, kit.step(state=StepState.RUNNING, idempotent=False))
    return partial(kit.record, lease, kit.step(idempotent=False))


@scene
async def record_several(kit: Kit) -> Call:
    lease = await kit.own()
    return partial(kit.record, lease, kit.step("a#1"), kit.step("b#1"), kit.step("c#1"))


@scene
async def record_several_conflict(kit: Kit) -> Call:
    lease = await kit.own()
    await kit.record(lease, kit.step("b#1"))
    return partial(kit.record, lease, kit.step("a#1"), kit.step("b#1", outcome="2"))


@scene
async def renew(kit: Kit) -> Call:
    lease = await kit.own()
    kit.clock.advance(5)
    return partial(kit.renew, lease)


@scene
async def ask(kit: Kit) -> Call:
    return partial(kit.ask, await kit.own())


@scene
async def sleep(kit: Kit) -> Call:
    lease = await kit.own()
    return partial(
        kit.stores.attempts.sleep, commands.Sleep(lease, kit.step("s#1", StepState.WAITING, kind=StepKind.SLEEP))
    )


async def asked(kit: Kit, lapse: int | None = None) -> Lease:
    lease = await kit.own()
    await kit.ask(lease, lapse_at_ms=lapse)
    return lease


@scene
async def withdraw(kit: Kit) -> Call:
    lease = await asked(kit)
    return partial(kit.stores.approvals.withdraw, commands.Withdraw(lease, kit.gate(state=StepState.CANCELLED)))


@scene
async def lapse(kit: Kit) -> Call:
    lease = await asked(kit, kit.now)
    return partial(kit.stores.approvals.lapse, commands.Lapse(lease, "ap-1", kit.gate(state=StepState.SUCCEEDED)))


@scene
async def park(kit: Kit) -> Call:
    return partial(kit.park, await asked(kit), notes=("1", "2"))


@scene
async def park_ready(kit: Kit) -> Call:
    return partial(kit.park, await kit.own(), "released", ready_at_ms=kit.now)


@scene
async def settle(kit: Kit) -> Call:
    return partial(kit.settle, await asked(kit), RunStatus.COMPLETED, result="1", notes=("1",))


@scene
async def wake(kit: Kit) -> Call:
    await kit.park(await kit.own(), "timer", wake_at_ms=kit.now)
    return partial(kit.stores.runs.wake, commands.Wake())


@scene
async def decide(kit: Kit) -> Call:
    await asked(kit)
    return kit.decide


@scene
async def decide_edited(kit: Kit) -> Call:
    await kit.park(await asked(kit))
    return partial(kit.decide, edited="2", edited_digest="d" * 64, reason="less")


@scene
async def cancel(kit: Kit) -> Call:
    await kit.start()
    return partial(kit.stores.runs.cancel, commands.Cancel(RUN, "ada"))


async def in_review(kit: Kit, *, orphan: bool = True) -> None:
    lease = await kit.own()
    if orphan:
        await kit.record(lease, kit.step("pay#1", StepState.ORPHANED, recorded=None))
    assert await kit.park(lease, "needs_review") == RunParked()


def word(kit: Kit, resolution: commands.Resolution, step_key: str | None) -> Call:
    return partial(kit.stores.runs.resolve, commands.Resolve(RUN, resolution, "ada", step_key))


@scene
async def retry_run(kit: Kit) -> Call:
    lease = await kit.own()
    await kit.record(lease, kit.step("pay#1", StepState.FAILED, error='{"type":"E","message":""}'))
    await kit.settle(lease, RunStatus.FAILED, error='{"type":"E","message":"","steps":["pay#1"]}')
    return partial(kit.stores.runs.retry, commands.RetryRun(RUN, "ada", "mended"))


@scene
async def resolve_happened(kit: Kit) -> Call:
    await in_review(kit)
    return word(kit, commands.Happened("1"), "pay#1")


@scene
async def resolve_retry(kit: Kit) -> Call:
    await in_review(kit)
    return word(kit, commands.Retry(), "pay#1")


@scene
async def resolve_retry_of_the_run(kit: Kit) -> Call:
    await in_review(kit, orphan=False)
    return word(kit, commands.Retry(), None)


@scene
async def resolve_give_up(kit: Kit) -> Call:
    await in_review(kit)
    return word(kit, commands.GiveUp(), "pay#1")


@scene
async def resolve_give_up_the_run(kit: Kit) -> Call:
    await in_review(kit, orphan=False)
    return word(kit, commands.GiveUp(), None)


# ---------------------------------------------------------------- the contract's


async def bare(kit: Kit) -> None:
    await kit.stores.runs.create(BARE, "{}")
    await kit.stores.runs.claim_and_own(BARE, PENDING, OWNER, kit.now)


@scene
async def create(kit: Kit) -> Call:
    return partial(kit.stores.runs.create, BARE, '{"a":1}', CreateOptions(None, "line", 1))


@scene
async def claim(kit: Kit) -> Call:
    await kit.stores.runs.create(BARE, "{}")
    return partial(kit.stores.runs.claim, BARE, PENDING, OWNER, kit.now)


@scene
async def claim_and_own(kit: Kit) -> Call:
    await kit.stores.runs.create(BARE, "{}")
    return partial(kit.stores.runs.claim_and_own, BARE, PENDING, OWNER, kit.now)


async def stale(kit: Kit) -> tuple[RunSnapshot, LivenessEvidence]:
    await bare(kit)
    heard = kit.now
    kit.clock.advance(STALE)
    evidence = LivenessEvidence(OWNER, kit.now, "same-host-pid-dead")
    return RunSnapshot(RunStatus.RUNNING, OWNER, heard), evidence


@scene
async def claim_and_own_from_the_dead(kit: Kit) -> Call:
    seen, evidence = await stale(kit)
    return partial(kit.stores.runs.claim_and_own, BARE, seen, OTHER, kit.now, evidence)


@scene
async def steal(kit: Kit) -> Call:
    seen, evidence = await stale(kit)
    return partial(kit.stores.runs.steal, BARE, seen, OTHER, kit.now, evidence)


async def claimed(kit: Kit) -> int:
    await kit.stores.runs.create(BARE, "{}")
    await kit.stores.runs.claim(BARE, PENDING, OWNER, kit.now)
    return kit.now


@scene
async def activate(kit: Kit) -> Call:
    return partial(kit.stores.runs.activate, BARE, OWNER, await claimed(kit), PENDING)


@scene
async def activate_what_has_changed(kit: Kit) -> Call:
    return partial(kit.stores.runs.activate, BARE, OWNER, await claimed(kit), RunSnapshot(RunStatus.SUSPENDED))


@scene
async def abandon_claim(kit: Kit) -> Call:
    return partial(kit.stores.runs.abandon_claim, BARE, OWNER, await claimed(kit))


@scene
async def recover_claim(kit: Kit) -> Call:
    at = await claimed(kit)
    kit.clock.advance(STALE)
    evidence = LivenessEvidence(OWNER, kit.now, "same-host-pid-dead")
    return partial(kit.stores.runs.recover_claim, BARE, OWNER, at, OTHER, kit.now, evidence)


@scene
async def heartbeat(kit: Kit) -> Call:
    await bare(kit)
    return partial(kit.stores.runs.heartbeat, BARE, OWNER, kit.now + 5)


@scene
async def reconfirm(kit: Kit) -> Call:
    await bare(kit)
    return partial(kit.stores.runs.reconfirm, BARE, OWNER, kit.now + 5)


@scene
async def transition_to_completed(kit: Kit) -> Call:
    await bare(kit)
    return partial(kit.stores.runs.transition_owned, BARE, OWNER, RunStatus.COMPLETED, "1")


@scene
async def transition_to_suspended(kit: Kit) -> Call:
    await bare(kit)
    guard = TransitionGuard("absent")
    return partial(kit.stores.runs.transition_owned, BARE, OWNER, RunStatus.SUSPENDED, "1", guard)


@scene
async def transition_to_running(kit: Kit) -> Call:
    await bare(kit)
    return partial(kit.stores.runs.transition_owned, BARE, OWNER, RunStatus.RUNNING, "1")


@scene
async def request_cancel(kit: Kit) -> Call:
    await bare(kit)
    return partial(kit.stores.runs.request_cancel, BARE, kit.now)


@scene
async def request_cancel_lineage(kit: Kit) -> Call:
    for number in range(3):
        options = CreateOptions(None, "line", number)
        await kit.stores.runs.create(RunId(f"round-{number}"), "{}", options)
    return partial(kit.stores.runs.request_cancel_lineage, RunId("round-1"), kit.now)


@scene
async def acknowledge_cancel(kit: Kit) -> Call:
    await bare(kit)
    await kit.stores.runs.request_cancel(BARE, kit.now)
    return partial(kit.stores.runs.acknowledge_cancel, BARE, OWNER, kit.now)


RUNNING = Attempt(BARE, "d", 1, "running", 5, {})


@scene
async def put(kit: Kit) -> Call:
    await bare(kit)
    return partial(kit.stores.attempts.put, RUNNING, OWNER)


@scene
async def put_upserting(kit: Kit) -> Call:
    await bare(kit)
    upserting = kit.stores.attempts.make_with(AttemptStoreOptions(put_mode="upsert"))
    return partial(upserting.put, RUNNING, OWNER)


@scene
async def put_over(kit: Kit) -> Call:
    put_again = await put_upserting(kit)
    await kit.stores.attempts.put(Attempt(BARE, "d", 1, "running", 4, {"old": 1}, checkpoint=1), OWNER)
    return put_again


@scene
async def finish(kit: Kit) -> Call:
    await (await put(kit))()
    return partial(kit.stores.attempts.finish, FinishAttempt(BARE, "d", 1, "completed", 9, outcome=1), OWNER)


@scene
async def attempt_heartbeat(kit: Kit) -> Call:
    await (await put(kit))()
    return partial(kit.stores.attempts.heartbeat, BARE, "d", 1, OWNER, 9, {"page": 2})


@scene
async def patch(kit: Kit) -> Call:
    await (await put(kit))()
    return partial(kit.stores.attempts.patch, AttemptId(BARE, "d", 1), AttemptPatch(meta={"m": 1}), OWNER)


# ---------------------------------------------------------------- while somebody else acts


@dataclass(frozen=True)
class Rivalry:
    """A scene in which somebody acts after the write was decided over and before its client hears of it."""

    scene: Scene
    other: Callable[[Kit], Awaitable[Any]]


async def _settled_as_asked(kit: Kit) -> None:
    [got] = await kit.acquire(owner=kit.owner("worker"))
    await kit.settle(got.lease, RunStatus.CANCELLED, seen_ms=got.run.ready_at_ms)


async def _taken_and_parked(kit: Kit) -> None:
    for got in await kit.acquire(owner=kit.owner("worker")):
        await kit.record(got.lease, kit.step("pay#1", attempt=2))
        await kit.park(got.lease, "needs_review")


async def _went_on(kit: Kit) -> None:
    await kit.stores.runs.claim_and_own(BARE, PENDING, OTHER, kit.now)
    await kit.stores.runs.transition_owned(BARE, OTHER, RunStatus.SUSPENDED, '{"b":2}')


async def _resumed(kit: Kit) -> None:
    await kit.stores.runs.claim_and_own(BARE, RunSnapshot(RunStatus.SUSPENDED), OTHER, kit.now)


async def _ended(kit: Kit) -> None:
    await kit.stores.runs.transition_owned(BARE, OWNER, RunStatus.CANCELLED)


async def _another_asked(kit: Kit) -> None:
    await kit.stores.runs.cancel(commands.Cancel(RUN, "bob"))


async def _another_said(kit: Kit) -> None:
    await kit.stores.runs.resolve(commands.Resolve(RUN, commands.Retry(), "bob"))


AFTERWARDS = {
    "cancel, and it is over": Rivalry(cancel, _settled_as_asked),
    "request_cancel, and it is over": Rivalry(request_cancel, _ended),
    "resolve, and a worker takes it": Rivalry(resolve_retry, _taken_and_parked),
    "resolve the run, and a worker takes it": Rivalry(resolve_retry_of_the_run, _taken_and_parked),
    "create, and it goes on": Rivalry(create, _went_on),
    "suspend, and it is resumed": Rivalry(transition_to_suspended, _resumed),
}
"""The write arrives, its reply does not, and then somebody acts upon it."""
BEFOREHAND = {
    "another cancel comes first": Rivalry(cancel, _another_asked),
    "another word comes first": Rivalry(resolve_retry_of_the_run, _another_said),
    "the same owner ends it first": Rivalry(transition_to_completed, _ended),
}
"""The write does not arrive, and somebody does the like before it is sent again."""
