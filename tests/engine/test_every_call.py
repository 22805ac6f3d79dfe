"""Whatever goes wrong, and whoever comes between, at whichever call of the store: a run ends as it would have.

Every workflow is run once undisturbed, which counts its calls; then once for each call that is taken. In a file and
on PostgreSQL few are taken; ``belay_crashes`` and ``make crashes`` kill at every one of them.
"""

import asyncio
from datetime import timedelta

import pytest

from belay_core import Approved, Context, current_step, step, workflow
from belay_testing.crashes.trial import Case, Trial, violations
from belay_testing.faults import FaultStores, error_after, error_before, late, meanwhile

TAKEN = {"memory": 4, "file": 1, "postgres": 1}
STALE = 30_001
WORLD: list[str] = []


def note() -> None:
    WORLD.append(current_step().key.partition("/")[2])


@step(idempotent=True)
async def look(number: int) -> int:
    note()
    return number


@step
async def pay(number: int) -> int:
    note()
    return number


@step(idempotent=True)
def count(number: int) -> int:
    note()
    return number


@step(retries=2)
async def flaky(number: int) -> int:
    if current_step().attempt < 3:
        raise OSError("down")
    return number


@workflow("steps")
async def steps(ctx: Context) -> list[int]:
    one = await ctx.step(look, 1)
    two = await ctx.step(pay, one + 1)
    return [one, two, await ctx.step(count, two + 1), await ctx.step(flaky, 4)]


async def both(ctx: Context, number: int) -> int:
    return await ctx.step(look, number) + await ctx.step(pay, number)


@workflow("mapping")
async def mapping(ctx: Context) -> list[int]:
    pairs = await ctx.map(both, range(3), limit=2)
    one, rest = await ctx.gather(lambda c: c.step(look, 1), lambda c: c.map(look, [5, 6]))
    return [*pairs, one, *rest]


@workflow("asking")
async def asking(ctx: Context) -> int:
    await ctx.step(look, 1)
    answer = await ctx.gate("boss", subject=3)
    assert isinstance(answer, Approved)
    return await ctx.step(pay, answer.subject)


@workflow("lapsing")
async def lapsing(ctx: Context) -> str:
    answer = await ctx.gate("clerk", subject=3, lapse_after=timedelta(hours=1))
    skipped = await ctx.gate("other", subject=3, when=lambda subject: subject > 5)
    await ctx.step(pay, 1)
    return f"{type(answer).__name__} {type(skipped).__name__}"


@workflow("racing")
async def racing(ctx: Context) -> str:
    gate = asyncio.create_task(ctx.gate("clerk", subject=3))
    nap = asyncio.create_task(ctx.sleep(timedelta(hours=1)))
    beside = asyncio.create_task(ctx.branch("side").step(look, 1))
    await asyncio.wait({gate, nap}, return_when=asyncio.FIRST_COMPLETED)
    gate.cancel()
    await asyncio.wait({gate, nap, beside})
    await ctx.step(pay, 1)
    return f"{gate.cancelled()} {nap.cancelled()}"


FLOWS = [steps, mapping, asking, lapsing, racing]
ANSWERS = {"clerk": "nobody"}


def trial_of(bench, flow) -> Trial:
    return Trial(bench.stores, bench.clock, Case(flow, None, ANSWERS, WORLD))


async def undisturbed(bench, flow):
    trial = trial_of(bench, flow)
    await trial.begin()
    counting = FaultStores(bench.stores)
    async with trial.worker(counting.stores) as worker:
        await trial.worked(worker, lambda: False)
    end = await trial.end()
    assert end.state == "completed"
    return len(counting.calls), end


async def disturbed(bench, flow, at, fault):
    """The run after a fault at a call, and which call of which operation met it."""
    while True:
        trial = trial_of(bench, flow)
        await trial.begin()
        faulty = FaultStores(bench.stores, at=at, fault=fault(trial))
        async with trial.worker(faulty.stores) as worker:
            trial.victim = worker
            await trial.worked(worker, lambda: False)
            trial.tick()
            await faulty.landed()
        if faulty.struck:
            return trial, f"at call {at}, {faulty.calls[at - 1]}"
        # How often a worker looks depends on how quickly the world answers: this time there were fewer calls.
        at -= 1


def points(calls, request, salt):
    """The calls that are taken, evenly spread, and others for each kind of trouble."""
    taken = TAKEN[request.node.callspec.params["belay_each_store"]]
    first = 1 + sum(map(ord, salt)) % max(1, calls // taken)
    return range(first, calls + 1, max(1, calls // taken))


FAULTS = {
    "error_before": lambda trial: error_before(),
    "error_after": lambda trial: error_after(),
    "late": lambda trial: late(trial.clock, 0.0),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
async def test_a_call_that_fails_is_made_up_for(bench, flow, name, request):
    calls, usual = await undisturbed(bench, flow)
    for at in points(calls, request, flow.name + name):
        trial, place = await disturbed(bench, flow, at, FAULTS[name])
        end = await trial.end()
        if end.state == "running":
            # The reply to an acquisition was lost: nobody works on the run until its lease is stale.
            await trial.left()
            end = await trial.finished()
        assert list(violations(trial, end, usual)) == [], f"{name} {place}"
        assert end.state == "completed"


async def cancelling(trial):
    await trial.client.cancel(trial.run)


async def deciding(trial):
    for approval in await trial.client.approvals(trial.run):
        if approval.gate == "boss":
            await trial.client.decide(approval, "approved")


async def taking_over(trial):
    trial.clock.advance(STALE)
    async with trial.worker(trial.stores) as other:
        await trial.worked(other, lambda: False)


async def leaving(trial):
    trial.victim.dispatcher.leave()
    for each in list(trial.victim.dispatcher._executors):
        each.leave()


@pytest.mark.parametrize("action", [cancelling, deciding, taking_over, leaving])
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
async def test_somebody_who_comes_between_two_calls_is_heard_and_doubles_nothing(bench, flow, action, request):
    calls, usual = await undisturbed(bench, flow)
    before = sum(map(ord, flow.name)) % 2 == 0
    for at in points(calls, request, flow.name + action.__name__):
        between = lambda trial: meanwhile("between", lambda: action(trial), before=before)  # noqa: E731
        trial, place = await disturbed(bench, flow, at, between)
        end = await trial.end()
        if end.state not in {"completed", "cancelled", "needs_review"}:
            await trial.left()
            end = await trial.finished()
        if end.state == "cancelled":
            assert action is cancelling, place
            assert max(end.seen.executed.values(), default=1) == 1, place
        else:
            assert list(violations(trial, end, usual)) == [], f"{action.__name__} {place}"
