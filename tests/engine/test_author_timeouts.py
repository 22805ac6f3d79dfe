"""An author's time-outs and cancellations are met by a replay as they were met before."""

import asyncio
from datetime import timedelta

import pytest

from belay_core import Client, Context, Worker, step, workflow
from belay_drivers.sqlite import open_sqlite
from belay_testing.drive import run_ready


@step(idempotent=True)
async def endless() -> None:
    await asyncio.Event().wait()


@step
async def act(name: str) -> str:
    return name


async def by_timeout(call):
    async with asyncio.timeout(0.01):
        await call


async def by_nested_timeouts(call):
    async with asyncio.timeout(60), asyncio.timeout(0.01):
        await call


async def by_wait_for(call):
    await asyncio.wait_for(call, 0.01)


async def by_task_cancel(call):
    task = asyncio.create_task(call)
    await asyncio.sleep(0.01)
    task.cancel()
    await task


async def by_timer(call):
    task = asyncio.create_task(call)
    asyncio.get_running_loop().call_later(0.01, task.cancel)
    await task


async def by_group(call):
    async def fail():
        await asyncio.sleep(0.01)
        raise LookupError

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(call)
            group.create_task(fail())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


WAYS = [by_timeout, by_nested_timeouts, by_wait_for, by_task_cancel, by_timer, by_group]


@pytest.mark.parametrize("way", WAYS)
async def test_the_body_meets_the_same_end_of_a_wait_on_every_replay(bench, way):
    met = []

    @workflow("bounded")
    async def bounded(ctx: Context) -> str:
        try:
            await way(ctx.step(endless))
        except (TimeoutError, LookupError, asyncio.CancelledError) as error:
            met.append(type(error).__name__)
        await ctx.step(act.named(f"act_{met[-1]}"), met[-1])
        await ctx.sleep(timedelta(seconds=5))
        await ctx.gate("go", subject=1)
        return met[-1]

    run = await bench.client.start(bounded)
    await bench.execute_due(bounded)
    bench.clock.advance(5_000)
    await bench.execute_due(bounded)
    [approval] = await bench.client.approvals(run)
    await bench.client.decide(approval, "approved")
    async with bench.worker(bounded) as worker:
        await run_ready(worker)
    assert (await bench.client.explain(run)).state == "completed"
    assert len(met) >= 3
    assert len(set(met)) == 1
    assert [each.step for each in await bench.attempts(run) if each.step.startswith("act")] == [f"act_{met[0]}"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_gate_that_is_given_up_ends_in_the_same_way_for_the_next_worker(tmp_path, way):
    met = []

    @workflow("bounded")
    async def bounded(ctx: Context) -> str:
        try:
            await way(ctx.gate("slow", subject=1))
        except (TimeoutError, LookupError, asyncio.CancelledError) as error:
            met.append(type(error).__name__)
        await ctx.step(act.named(f"act_{met[-1]}"), met[-1])
        await ctx.gate("go", subject=1)
        return met[-1]

    async with open_sqlite(str(tmp_path / "belay.db")) as stores:
        client = Client(stores, approver="ada", telemetry=False)
        async with Worker(stores, [bounded], telemetry=False):
            run = await client.start(bounded)
            while [each.gate for each in await client.approvals(run)] != ["go"]:
                await asyncio.sleep(0.01)
        [approval] = await client.approvals(run)
        await client.decide(approval, "approved")
        async with Worker(stores, [bounded], telemetry=False):
            assert await asyncio.wait_for(run.result(), 10) == met[0]
        acted = [each.step for each in (await client.history(run)).attempts if each.step.startswith("act")]
    assert len(met) >= 2
    assert set(met) == {met[0]}
    assert acted == [f"act_{met[0]}"]
