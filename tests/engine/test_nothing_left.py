"""What a run leaves behind in memory: nothing that only the garbage collector would find.

A worker that has runs end by the thousand would otherwise stop all of them, again and again, to look for what is left.
"""

import asyncio
import gc
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

from belay_core import Context, step, workflow
from belay_testing.drive import run_ready

RUNS = 10


@step(idempotent=True)
async def kept(number: int) -> int:
    return number


@step(idempotent=True)
async def broken(number: int) -> int:
    raise ValueError(number)


@workflow("ends")
async def ends(ctx: Context, number: int) -> int:
    return await ctx.step(kept, number)


@workflow("fails")
async def fails(ctx: Context, number: int) -> int:
    return await ctx.step(broken, number)


@workflow("fails-by-itself")
async def fails_by_itself(ctx: Context, number: int) -> int:
    raise LookupError(await ctx.step(kept, number))


@workflow("recovers")
async def recovers(ctx: Context, number: int) -> int:
    try:
        return await ctx.step(broken, number)
    except Exception:  # noqa: BLE001  (an author's own way to go on)
        return await ctx.step(kept, number)


@workflow("asks")
async def asks(ctx: Context, number: int) -> None:
    await ctx.gate("decide", subject=number)


@workflow("sleeps")
async def sleeps(ctx: Context, _number: int) -> None:
    await ctx.sleep(timedelta(days=1))


@workflow("asks-side-by-side")
async def asks_side_by_side(ctx: Context, number: int) -> None:
    async def one(below: Context, item: int) -> None:
        await below.gate("decide", subject=item)

    await ctx.map(one, range(number, number + 2))


@workflow("fails-side-by-side")
async def fails_side_by_side(ctx: Context, number: int) -> None:
    await ctx.map(broken, range(number, number + 2))


@step(idempotent=True)
def broken_in_a_thread(number: int) -> int:
    raise ValueError(number)


@workflow("fails-in-a-thread")
async def fails_in_a_thread(ctx: Context, number: int) -> int:
    return await ctx.step(broken_in_a_thread, number)


@workflow("asks-after-a-failure")
async def asks_after_a_failure(ctx: Context, number: int) -> None:
    """Played again once it is decided, with the failure as it is recorded."""
    with suppress(Exception):
        await ctx.step(broken, number)
    await ctx.gate("decide", subject=number)
    with suppress(Exception):
        await ctx.step(broken, number)


@workflow("asks-beside-a-failure")
async def asks_beside_a_failure(ctx: Context, number: int) -> None:
    async def one(below: Context, item: int) -> None:
        if item == number:
            await below.step(broken, item)
        await below.gate("decide", subject=item)

    await ctx.map(one, range(number, number + 2))


@workflow("asks-in-a-group")
async def asks_in_a_group(ctx: Context, number: int) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.branch("one").gate("decide", subject=number))
        group.create_task(ctx.branch("two").gate("decide", subject=number))


@workflow("asks-the-unencodable")
async def asks_the_unencodable(ctx: Context, _number: int) -> None:
    await ctx.gate("decide", subject=object())


WAYS = (
    ends,
    fails,
    fails_by_itself,
    fails_in_a_thread,
    recovers,
    asks,
    asks_after_a_failure,
    asks_beside_a_failure,
    asks_in_a_group,
    asks_the_unencodable,
    sleeps,
    asks_side_by_side,
    fails_side_by_side,
)


@contextmanager
def found_by_the_collector(found):
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        found.update(type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("belay_core."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
async def test_a_run_leaves_nothing_for_the_collector_to_find(bench, way):
    found = Counter()
    async with bench.worker(way) as worker:
        await bench.client.start(way, 0)
        await run_ready(worker)
        with found_by_the_collector(found):
            for number in range(RUNS):
                await bench.client.start(way, number)
            await run_ready(worker)
            for approval in await bench.client.approvals():
                await bench.client.decide(approval, "approved")
            await run_ready(worker)
    assert found == Counter()


async def cancelled(bench, worker, run):
    await bench.client.cancel(run)
    await worker.dispatcher.keeper.renew()


async def lost(_bench, worker, _run):
    for handle in worker.dispatcher.handles():
        handle.lose()


async def left(_bench, worker, _run):
    for each in worker.dispatcher._executors:
        each.leave()
        each.end_grace()


@pytest.mark.parametrize("end", [cancelled, lost, left])
async def test_a_run_that_is_ended_while_a_step_executes_leaves_nothing_either(bench, end):
    found, begun = Counter(), asyncio.Event()

    @step(idempotent=True)
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    @workflow("hangs")
    async def hangs(ctx: Context) -> None:
        await ctx.step(hang)

    async def ended(worker):
        begun.clear()
        run = await bench.client.start(hangs)
        await worker.dispatcher.take()
        await begun.wait()
        await end(bench, worker, run)
        await worker.dispatcher.finish_all()

    async with bench.worker(hangs) as worker:
        await ended(worker)
        with found_by_the_collector(found):
            await ended(worker)
    assert found == Counter()
