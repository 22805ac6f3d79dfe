"""What a run leaves behind in memory: nothing that only the garbage collector would find.

A worker that has runs end by the thousand would otherwise stop all of them, again and again, to look for what is left.
"""

import gc
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta

import pytest

from belay_core import Context, step, workflow
from belay_testing.drive import drain

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


WAYS = (ends, fails, fails_by_itself, recovers, asks, sleeps, asks_side_by_side, fails_side_by_side)


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
        await drain(worker)
        with found_by_the_collector(found):
            for number in range(RUNS):
                await bench.client.start(way, number)
            await drain(worker)
    assert found == Counter()
