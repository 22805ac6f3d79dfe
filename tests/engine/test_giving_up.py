"""An author who stops waiting for a call is told the same on every replay, whenever it was and whatever came of it."""

import asyncio
from datetime import timedelta

import pytest

from belay_core import Context, step, workflow
from belay_core.records.step_record import StepState
from belay_testing.drive import decide, run_ready
from belay_testing.faults import Fault, FaultStores

GONE = asyncio.CancelledError


async def reported(task):
    """What an author hears of a task."""
    try:
        return await task
    except GONE:
        return "cancelled"


async def replayed(bench, flow, run):
    """Park at the gate at the end, and go through everything again."""
    async with bench.worker(flow) as worker:
        await run_ready(worker)
        await decide(worker, run, "end")
    return await run.result()


@pytest.mark.parametrize("kind", ["idempotent", "once", "threaded", "sleep", "gate", "retried"])
async def test_a_call_given_up_just_as_its_end_is_recorded_stays_given_up(bench, kind):
    heard, task, beginnings = [], None, []

    @step(idempotent=kind in {"idempotent", "threaded"}, retries=1 if kind == "retried" else 0)
    async def work() -> str:
        beginnings.append("work")
        if kind == "retried":
            raise OSError("down")
        return "done"

    @step(idempotent=True)
    def threaded() -> str:
        return "done"

    def called(ctx: Context):
        if kind == "sleep":
            return ctx.sleep(timedelta(seconds=1))
        if kind == "gate":
            return ctx.gate("ask", subject=1, when=lambda subject: False)
        return ctx.step(threaded if kind == "threaded" else work)

    @workflow("hasty")
    async def hasty(ctx: Context) -> list[str]:
        nonlocal task
        task = asyncio.create_task(called(ctx))
        heard.append(await reported(task))
        await ctx.gate("end", subject=1)
        return heard

    async def give_up(_store, method):
        if method == "record":
            task.cancel()

    at = 2 if kind == "once" else 1
    store = FaultStores(bench.stores, of="record", at=at, fault=Fault("give up", before=True, strike=give_up))
    run = await bench.client.start(hasty)
    async with bench.worker_over(store, hasty) as worker:
        await run_ready(worker)
        if kind == "sleep":
            bench.clock.advance(1_000)
            await run_ready(worker)
    assert store.struck
    heard_first = list(heard)
    assert set(await replayed(bench, hasty, run)) == {"cancelled"}, heard_first
    last = {each.step_key: each.state for each in await bench.attempts(run)}
    assert next(state for key, state in last.items() if "end" not in key) in {StepState.CANCELLED, StepState.ABANDONED}


async def test_what_was_given_up_keeps_its_place_among_what_others_heard(bench):
    story, doors = [], {name: asyncio.Event() for name in ("slow", "quick")}

    @step
    async def work(name: str) -> str:
        await doors[name].wait()
        return name

    @workflow("ordered")
    async def ordered(ctx: Context) -> None:
        told_here = []
        story.append(told_here)

        async def impatient(c: Context) -> None:
            try:
                await asyncio.wait_for(c.step(work, "slow"), 0.3)
            except TimeoutError:
                told_here.append("gave up")
                doors["quick"].set()

        async def patient(c: Context) -> None:
            told_here.append(await c.step(work, "quick"))
            doors["slow"].set()

        await ctx.gather(impatient, patient)
        await ctx.gate("end", subject=1)

    run = await bench.client.start(ordered)
    await replayed(bench, ordered, run)
    assert story == [["gave up", "quick"]] * 2
    assert (await bench.states(run))["gather#1[0]/work#1"] == ["abandoned"]


async def test_a_gate_given_up_twice_in_a_row_is_withdrawn_all_the_same(bench):
    @step(idempotent=True)
    async def asked() -> None:
        while not bench.effects:
            bench.effects = list(await bench.client.approvals())

    @workflow("insisting")
    async def insisting(ctx: Context) -> str:
        task = asyncio.create_task(ctx.gate("boss", subject=1))
        await ctx.step(asked)
        for _ in range(4):
            task.cancel()
            await asyncio.sleep(0)
        heard = await reported(task)
        await ctx.gate("end", subject=1)
        return heard

    run = await bench.client.start(insisting)
    assert await replayed(bench, insisting, run) == "cancelled"
    assert (await bench.states(run))["boss#1"] == ["cancelled"]


async def test_a_step_given_up_before_its_body_began_never_begins(bench):
    @step
    async def pay() -> None:
        bench.effects.append("pay")

    @workflow("early")
    async def early(ctx: Context) -> str:
        task = asyncio.create_task(ctx.step(pay))
        await asyncio.sleep(0)
        task.cancel()
        return await reported(task)

    run = await bench.client.start(early)
    await bench.execute_due(early)
    assert await run.result() == "cancelled"
    assert bench.effects == []


async def test_a_step_that_ends_although_its_time_was_up_has_ended(bench):
    begun = asyncio.Event()

    @step(timeout=timedelta(seconds=1))
    async def pay() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "paid"
        return "never"

    @workflow("late")
    async def late(ctx: Context) -> str:
        return await ctx.step(pay)

    run = await bench.client.start(late)
    async with bench.worker(late) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        bench.clock.advance(1_000)
        await executing
    assert await run.result() == "paid"


async def test_an_orphan_its_author_gives_up_goes_to_review_and_never_silently_on(bench):
    stuck, answered = asyncio.Event(), asyncio.Event()

    @step
    async def pay() -> None:
        bench.effects.append("pay")
        stuck.set()
        await asyncio.Event().wait()

    @step(idempotent=True)
    async def after_a_while() -> None:
        if answered.is_set():
            await asyncio.sleep(0.02)
        else:
            await asyncio.Event().wait()

    @workflow("impatient")
    async def impatient(ctx: Context) -> str:
        task = asyncio.create_task(ctx.step(pay))
        await stuck.wait()
        await ctx.branch("side").step(after_a_while)
        task.cancel()
        await reported(task)
        return "went on"

    run = await bench.client.start(impatient)
    await bench.until_dead(impatient, at=stuck)
    answered.set()
    await bench.execute_due(impatient)
    assert (await bench.client.explain(run)).state == "needs_review"
    assert bench.effects == ["pay"]


async def test_a_body_that_fails_beside_an_orphan_goes_to_review(bench):
    stuck = asyncio.Event()

    @step
    async def pay() -> None:
        stuck.set()
        await asyncio.Event().wait()

    async def fail() -> None:
        if not bench.effects:
            await asyncio.Event().wait()
        raise OSError("down")

    @workflow("failing")
    async def failing(ctx: Context) -> None:
        await asyncio.gather(ctx.step(pay), ctx.step(step(idempotent=True)(fail)))

    run = await bench.client.start(failing)
    await bench.until_dead(failing, at=stuck)
    bench.effects.append("fail now")
    await bench.execute_due(failing)
    assert (await bench.client.explain(run)).state == "needs_review"
