"""Clocks that jump, spans of any length, and waits that end in the very moment somebody looks."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from belay_core import Context, DefinitionError, InvalidInput, RunFailed, Worker, step, workflow
from belay_testing.drive import run_ready
from belay_testing.faults import FaultStores, meanwhile

HOURS = 2 * 3_600_000


@workflow("napping")
async def napping(ctx: Context, milliseconds: int) -> str:
    await ctx.sleep(timedelta(milliseconds=milliseconds))
    return "awake"


@pytest.mark.parametrize("length", [0, 1, 999, 1_000, 1_001, 1_099, 1_100, 1_101])
async def test_a_sleep_that_ends_just_as_its_run_would_be_parked_ends(bench, length):
    run = await bench.client.start(napping, length)
    async with Worker(bench.stores, [napping], telemetry=False) as worker:
        while not (await bench.states(run)):
            await asyncio.sleep(0.001)
        # The moments at which a run counts as quiet, is parked, and wakes: all passed at once.
        while worker.dispatcher.in_hand or (await bench.client.get(run)).status != "completed":
            bench.clock.advance(1_100)
            await asyncio.sleep(0.002)
    assert await run.result() == "awake"


async def test_a_sleep_over_which_the_clock_is_set_forward_ends_and_set_back_ends_later(bench):
    run, other = await bench.client.start(napping, HOURS), await bench.client.start(napping, HOURS)
    await bench.execute_due(napping)
    bench.clock.set(bench.clock.now() - HOURS)
    await bench.execute_due(napping)
    assert (await bench.client.get(run)).status == "suspended"
    bench.clock.set(bench.clock.now() + 2 * HOURS)
    await bench.execute_due(napping)
    assert [await run.result(), await other.result()] == ["awake", "awake"]


async def test_a_gate_whose_clock_is_set_back_while_it_lapses_may_be_decided_again(bench):
    @workflow("lapsing")
    async def lapsing(ctx: Context) -> str:
        return type(await ctx.gate("boss", subject=1, lapse_after=timedelta(hours=1))).__name__

    async def set_back():
        bench.clock.set(bench.clock.now() - HOURS)

    run = await bench.client.start(lapsing)
    await bench.execute_due(lapsing)
    bench.clock.advance(timedelta(hours=1))
    store = FaultStores(bench.stores, of="lapse", at=1, fault=meanwhile("set back", set_back, before=True))
    async with bench.worker_over(store, lapsing) as worker:
        await run_ready(worker)
    assert (await bench.client.explain(run)).state == "approval"
    await bench.client.approve(run)
    bench.clock.advance(HOURS)
    await bench.execute_due(lapsing)
    assert await run.result() == "Approved"


async def test_a_loop_that_is_blocked_for_longer_than_the_lease_doubles_nothing(bench):
    @step(idempotent=True)
    async def blocking() -> None:
        bench.effects.append("blocking")
        if len(bench.effects) == 1:
            bench.clock.advance(40_000)  # in which nothing else could run

    @step
    async def pay() -> str:
        bench.effects.append("pay")
        return "paid"

    @workflow("blocked")
    async def blocked(ctx: Context) -> str:
        await ctx.step(blocking)
        return await ctx.step(pay)

    run = await bench.client.start(blocked)
    async with Worker(bench.stores, [blocked], telemetry=False):
        while (await bench.client.get(run)).status != "completed":
            await asyncio.sleep(0.001)
            bench.clock.advance(100)
    assert await run.result() == "paid"
    assert bench.counted()["pay"] == 1


async def test_a_worker_that_takes_over_its_own_run_ends_its_earlier_execution_first(bench):
    begun, cleaned = asyncio.Event(), []

    @step(idempotent=True)
    async def slow() -> str:
        bench.effects.append(f"step {len(cleaned)}")
        if len(bench.effects) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "done"

    @workflow("again")
    async def again(ctx: Context) -> str:
        try:
            return await ctx.step(slow)
        finally:
            await asyncio.sleep(0.02)
            cleaned.append("cleaned")

    run = await bench.client.start(again)
    async with bench.worker(again) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        bench.clock.advance(30_001)
        assert await worker.dispatcher.take() == 1
        await executing
        await run_ready(worker)
        assert worker.dispatcher.in_hand == 0
    assert await run.result() == "done"
    # The second execution began its step after the first one had cleaned up.
    assert bench.effects == ["step 0", "step 1"]


async def test_now_is_no_earlier_than_what_a_map_has_waited_for(bench):
    @step(idempotent=True)
    async def tick(_number: int) -> None:
        bench.clock.advance(1_000)

    @workflow("mapping")
    async def mapping(ctx: Context) -> list[float]:
        before = ctx.now()
        await ctx.map(tick, [1, 2])
        after = ctx.now()
        await ctx.sleep(timedelta(hours=1))
        return [(after - before).total_seconds()]

    run = await bench.client.start(mapping)
    await bench.execute_due(mapping)
    bench.clock.advance(timedelta(hours=1))
    await bench.execute_due(mapping)
    assert await run.result() == [2.0]


@pytest.mark.parametrize("rule", ["duration", "lapse_after"])
async def test_a_wait_beyond_the_calendar_is_refused_by_name(bench, rule):
    @workflow("endless")
    async def endless(ctx: Context) -> None:
        if rule == "duration":
            await ctx.sleep(timedelta.max)
        await ctx.gate("boss", subject=1, lapse_after=timedelta.max)

    run = await bench.client.start(endless)
    await bench.execute_due(endless)
    with pytest.raises(RunFailed, match=f"{rule}: must be at most 365250 days"):
        await run.result()


@pytest.mark.parametrize("rule", ["timeout", "backoff"])
def test_a_rule_beyond_the_calendar_is_refused_when_the_step_is_declared(rule):
    async def work() -> None: ...

    with pytest.raises(DefinitionError, match=f"{rule}: must be at most 365250 days"):
        step(**{rule: timedelta.max})(work)


async def test_a_thousand_years_are_waited_for_and_explained(bench):
    @workflow("patient")
    async def patient(ctx: Context) -> None:
        await ctx.sleep(timedelta(days=365_250))

    run = await bench.client.start(patient)
    await bench.execute_due(patient)
    explained = await bench.client.explain(run)
    assert (explained.state, explained.because[:19]) == ("timer", "it sleeps until 302")


@pytest.mark.parametrize(
    ("moment", "rule"),
    [
        (datetime.max.replace(tzinfo=UTC), "must be before the year 9999"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), "must be before the year 9999"),
        ("2031-01-01", "must be a datetime"),
    ],
)
async def test_a_start_beyond_the_calendar_is_refused_by_name(bench, moment, rule):
    with pytest.raises(InvalidInput, match=f"run_at: {rule}"):
        await bench.client.start(napping, 1, run_at=moment)


async def test_a_back_off_longer_than_an_hour_is_kept(bench):
    @step(retries=2, backoff=timedelta(days=1))
    async def failing() -> None:
        raise OSError("down")

    @workflow("slowly")
    async def slowly(ctx: Context) -> None:
        await ctx.step(failing)

    run = await bench.client.start(slowly)
    await bench.execute_due(slowly)
    found = await bench.client.get(run)
    assert found.waiting is not None
    assert found.waiting.wake_at_ms == int(bench.clock.now()) + 86_400_000
