"""What went wrong in other systems and was reported there in public, by the number of the case."""

import asyncio
from datetime import timedelta

import pytest

from belay_core import Context, Worker, step, workflow
from belay_core.stores.approvals import AlreadyDecided
from belay_testing.drive import run_ready, vanish
from belay_testing.faults import FaultStores, error_after, error_before
from tests.engine.conftest import STALE

RUNS = 20


def counting(bench):
    @step(idempotent=True)
    async def count(number: int) -> int:
        bench.effects.append(number)
        return number

    @workflow("counting")
    async def flow(ctx: Context, number: int) -> int:
        return await ctx.step(count, number)

    return flow


async def stranded(bench, flow) -> list:
    """Runs whose owner has taken them and is gone before anything of them was recorded."""
    runs = [await bench.client.start(flow, number) for number in range(RUNS)]
    async with bench.worker(flow) as worker:
        taking = asyncio.create_task(worker.dispatcher.take())
        while not worker.dispatcher.in_hand:
            await asyncio.sleep(0)
        await vanish(worker)
        await taking
    bench.effects.clear()
    bench.clock.advance(STALE)
    return runs


@pytest.mark.parametrize("fault", [error_before, error_after])
@pytest.mark.parametrize("of", ["acquire", "history", "wake", "running_owners", "record", "settle"])
async def test_b01_a_database_that_is_away_while_runs_are_recovered_loses_none_of_them(bench, fault, of):
    flow = counting(bench)
    runs = await stranded(bench, flow)
    store = FaultStores(bench.stores, of=of, at=1, times=3, fault=fault())
    async with bench.worker_over(store, flow) as worker:
        # The worker's own loop, which goes on where looking for runs fails.
        working = asyncio.create_task(worker.dispatcher.work_for_ever())
        for run in runs:
            while (await bench.client.get(run)).status != "completed":
                bench.clock.advance(1_000)
                await asyncio.sleep(0.002)
        worker.dispatcher.leave()
        while not working.done():
            bench.clock.advance(1_000)
            await asyncio.sleep(0.002)
    assert store.struck
    assert [await run.result() for run in runs] == list(range(RUNS))


async def test_b02_of_two_that_find_the_same_dead_owners_runs_each_is_taken_by_one(bench):
    flow = counting(bench)
    runs = await stranded(bench, flow)
    async with bench.worker(flow) as one, bench.worker(flow) as two:
        await asyncio.gather(run_ready(one), run_ready(two))
    assert [await run.result() for run in runs] == list(range(RUNS))
    assert sorted(bench.effects) == list(range(RUNS))


async def test_b07_a_worker_that_leaves_keeps_the_run_of_its_last_step_from_others(bench):
    begun, end = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> str:
        bench.effects.append("slow")
        begun.set()
        await end.wait()
        return "slow"

    @workflow("leaving")
    async def flow(ctx: Context) -> str:
        return await ctx.step(slow)

    run = await bench.client.start(flow)
    async with Worker(bench.stores, [flow], grace=timedelta(hours=1)) as worker, bench.worker(flow) as other:
        await begun.wait()
        leaving = asyncio.create_task(worker.leave())
        for _ in range(40):
            bench.clock.advance(2_000)
            await asyncio.sleep(0.005)
            assert await other.dispatcher.take() == 0
        end.set()
        await leaving
        await run_ready(other)
    assert (await run.result(), bench.effects) == ("slow", ["slow"])


async def test_b08_a_run_that_is_cancelled_as_it_ends_has_one_end(bench):
    flow = counting(bench)
    runs = [await bench.client.start(flow, number) for number in range(RUNS)]
    seen: dict[str, set[str]] = {run.run_id: set() for run in runs}

    async def cancelling(run, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await bench.client.cancel(run)

    async def watching() -> None:
        while not all(seen.values()):
            for run in runs:
                status = (await bench.client.get(run)).status.value
                if status not in {"pending", "running", "suspended"}:
                    seen[run.run_id].add(status)

    async with bench.worker(flow) as worker:
        cancels = [cancelling(run, 7 * number) for number, run in enumerate(runs)]
        await asyncio.wait_for(asyncio.gather(watching(), run_ready(worker), *cancels), 30)
        await run_ready(worker)
    for run in runs:
        assert seen[run.run_id] == {(await bench.client.get(run)).status.value}


@pytest.mark.parametrize("first", ["decided", "lapsed"])
@pytest.mark.parametrize("second", ["decided", "lapsed"])
async def test_b11_each_wait_has_an_end_of_its_own_and_a_replay_hears_the_same(bench, first, second):
    heard = []

    @workflow("twice")
    async def flow(ctx: Context) -> list[str]:
        answers = [type(await ctx.gate("a", subject=1, lapse_after=timedelta(seconds=10))).__name__]
        heard.append(answers[:])
        answers.append(type(await ctx.gate("a", subject=1, lapse_after=timedelta(seconds=10))).__name__)
        heard.append(answers[:])
        await ctx.gate("last", subject=1)
        return answers

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    for what in (first, second):
        [approval] = await bench.client.approvals(run)
        if what == "decided":
            await bench.client.decide(approval, "approved")
            assert isinstance(await bench.client.decide(approval, "rejected"), AlreadyDecided)
        else:
            bench.clock.advance(10_000)
        await bench.execute_due(flow)
    [approval] = await bench.client.approvals(run)
    await bench.client.decide(approval, "approved")
    await bench.execute_due(flow)
    expected = [{"decided": "Approved", "lapsed": "Lapsed"}[what] for what in (first, second)]
    assert await run.result() == expected
    assert all(each == expected[: len(each)] for each in heard)


async def test_b13_no_signal_to_a_run_begins_an_executing_step_a_second_time(bench):
    begun, end = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> str:
        bench.effects.append("slow")
        begun.set()
        await end.wait()
        return "slow"

    @workflow("told")
    async def flow(ctx: Context) -> str:
        gates = [asyncio.create_task(ctx.gate("boss", subject=number)) for number in range(20)]
        answer = await ctx.step(slow)
        await asyncio.gather(*gates)
        return answer

    run = await bench.client.start(flow)
    async with Worker(bench.stores, [flow]), bench.worker(flow) as other:
        await begun.wait()
        while len(approvals := await bench.client.approvals(run)) < 20:
            await asyncio.sleep(0.001)
        for approval in approvals:
            await bench.client.decide(approval, "approved")
            await bench.stores.waiting.wake(run.run_id)
            bench.stores.notifier.notify(run.run_id, ready=True)
            assert await other.dispatcher.take() == 0
        end.set()
        assert await asyncio.wait_for(run.result(), 10) == "slow"
    assert bench.effects == ["slow"]
