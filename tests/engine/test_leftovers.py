"""What a worker leaves behind when it has left: nothing."""

import asyncio
import gc
import warnings
from datetime import timedelta

from belay_core import Context, StepFailed, Worker, step, workflow
from belay_testing.drive import decide, run_ready


@step(idempotent=True)
async def look(number: int) -> int:
    return number


@step
def pay(number: int) -> int:
    return number


@step
async def fail(number: int) -> int:
    raise OSError("down")


@workflow("busy")
async def busy(ctx: Context, number: int) -> int:
    async def item(c: Context, each: int) -> int:
        return await c.step(look, each)

    await ctx.step(pay, number)
    await ctx.map(item, range(3), limit=2)
    nap = asyncio.create_task(ctx.sleep(timedelta(hours=1)))
    await ctx.step(look, 1)
    nap.cancel()
    await asyncio.wait({nap})
    try:
        await ctx.step(fail, number)
    except StepFailed:
        return number
    return -1


async def test_runs_leave_no_task_no_listener_and_no_memory_behind(bench):
    counts = []
    before = asyncio.all_tasks()
    async with Worker(bench.stores, [busy]) as worker:
        for _ in range(12):
            runs = [await worker.client.start(busy, number) for number in range(25)]
            for run in runs:
                assert (await run.result()) >= 0
            while worker.dispatcher.in_hand:
                await asyncio.sleep(0.001)
            del runs, run
            gc.collect()
            counts.append(len(gc.get_objects()))
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before
    assert bench.stores.notifier._listeners == {}
    # Drivers fill their caches for a while; a hundred runs that were kept would be hundreds of objects each.
    assert counts[11] - counts[7] < 1_500


async def test_cancelling_the_task_a_worker_runs_in_leaves_nothing_behind(bench):
    begun = asyncio.Event()

    @workflow("hanging")
    async def hanging(ctx: Context) -> None:
        await ctx.step(hang)

    @step(idempotent=True)
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main():
        async with Worker(bench.stores, [hanging], grace=timedelta(hours=1)):
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    for turns in range(1, 8):
        begun.clear()
        await bench.client.start(hanging)
        working = asyncio.create_task(main())
        await begun.wait()
        while not working.done():  # once to leave, once more to break off, and on
            working.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
        assert working.cancelled()
        async with asyncio.timeout(5):
            while asyncio.all_tasks() != before:
                await asyncio.sleep(0.001)


async def test_a_run_that_is_parked_with_calls_not_awaited_yet_is_silent(bench):
    @workflow("later")
    async def later(ctx: Context) -> list[int]:
        calls = [ctx.step(look, 1), ctx.map(look, [2]), ctx.gather(), ctx.gate("never", subject=1)]
        await ctx.gate("boss", subject=1)
        calls.pop().close()
        return [await calls[0], *await calls[1], *await calls[2]]

    run = await bench.client.start(later)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with bench.worker(later) as worker:
            await run_ready(worker)
            gc.collect()
            await decide(worker, run, "boss")
    assert await run.result() == [1, 2]
