"""A SQLite file on a host whose wall clock is set: owners that work keep their runs, and what is ready stays so."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from belay_core import Context, Worker, step, workflow
from belay_drivers.sqlite import open_sqlite
from belay_testing.clock import ManualClock
from belay_testing.drive import run_ready

HOUR = 3_600_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "belay.db"


def flow_of(effects: list[str], until: asyncio.Event):
    @step(idempotent=True)
    async def act() -> int:
        effects.append("act")
        await until.wait()
        return len(effects)

    @workflow("acting")
    async def acting(ctx: Context) -> int:
        return await ctx.step(act)

    return acting


@pytest.mark.parametrize("by", [HOUR, -HOUR, 31_000, -31_000])
async def test_an_owner_that_works_keeps_its_runs(path, by):
    clock, until = ManualClock(), asyncio.Event()
    effects: list[str] = []
    acting = flow_of(effects, until)
    async with (
        open_sqlite(path, clock=clock) as one,
        open_sqlite(path, clock=clock) as other,
        Worker(one, [acting], telemetry=False, background=False) as owner,
        Worker(other, [acting], telemetry=False, background=False) as rival,
    ):
        run = await owner.client.start(acting)
        executing = asyncio.create_task(run_ready(owner))
        while not effects:
            await asyncio.sleep(0.001)
        # Both have looked at their clocks before it is set.
        assert await rival.dispatcher.take() == 0
        clock.set(clock.now() + by)
        for _ in range(35):
            assert await rival.dispatcher.take() == 0
            assert await owner.dispatcher.take() == 0
            await owner.dispatcher.keeper.renew()
            clock.advance(1_000)
        until.set()
        await executing
        assert (await run.result(), effects) == (1, ["act"])
        assert (await owner.client.get(run)).epoch == 1


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_an_owner_that_does_not_work_loses_them_after_two_stale_periods_at_most(path, by):
    clock, until = ManualClock(), asyncio.Event()
    effects: list[str] = []
    acting = flow_of(effects, until)
    async with (
        open_sqlite(path, clock=clock) as one,
        open_sqlite(path, clock=clock) as other,
        Worker(one, [acting], telemetry=False, background=False) as stalled,
        Worker(other, [acting], telemetry=False, background=False) as rival,
    ):
        await stalled.client.start(acting)
        executing = asyncio.create_task(run_ready(stalled))
        while not effects:
            await asyncio.sleep(0.001)
        assert await rival.dispatcher.take() == 0
        clock.set(clock.now() + by)
        taken, seconds = 0, 0
        while not taken and seconds < 70:
            taken = await rival.dispatcher.take()
            clock.advance(1_000)
            seconds += 1
        assert (taken, 29 < seconds <= 62) == (1, True)
        until.set()
        stalled.dispatcher.drop()
        await run_ready(rival)
        await executing


async def test_what_was_ready_before_a_step_back_is_taken_after_it(path):
    clock = ManualClock()
    until = asyncio.Event()
    until.set()
    acting = flow_of([], until)

    @workflow("asking")
    async def asking(ctx: Context) -> str:
        return type(await ctx.gate("go", subject=1)).__name__

    async with (
        open_sqlite(path, clock=clock) as stores,
        Worker(stores, [acting, asking], telemetry=False, background=False) as worker,
    ):
        asked = await worker.client.start(asking)
        await run_ready(worker)
        started = await worker.client.start(acting)
        later = await worker.client.start(
            acting, run_at=datetime.fromtimestamp(clock.now() / 1000, UTC) + timedelta(minutes=5)
        )
        await worker.client.approve(asked, "go", by="ana")
        clock.set(clock.now() - HOUR)
        await run_ready(worker)
        assert (await started.result(), await asked.result()) == (1, "Approved")
        assert (await worker.client.get(later)).status == "pending"
        clock.advance(HOUR + 300_000)
        await run_ready(worker)
        assert await later.result() == 2


async def test_it_is_so_where_no_process_looked_when_the_clock_was_set(path):
    until = asyncio.Event()
    until.set()
    acting = flow_of([], until)
    early, late = ManualClock(), ManualClock()
    early.advance(HOUR)
    async with open_sqlite(path, clock=early) as stores, Worker(stores, [acting], background=False) as worker:
        run = await worker.client.start(acting)
    async with open_sqlite(path, clock=late) as stores, Worker(stores, [acting], background=False) as worker:
        await run_ready(worker)
        assert (await worker.client.get(run)).status == "completed"
