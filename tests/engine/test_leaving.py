"""Leaving is bounded: the grace, then at most five seconds, whatever the stores do."""

import asyncio
import time
from datetime import timedelta

import pytest

from belay_core import Context, Worker, step, workflow
from belay_core.errors import DatabaseError, RunStoreError
from belay_drivers.sqlite import open_sqlite
from belay_testing.faults import Fault, FaultStores, error_before, hang


def refused() -> Fault:
    async def refuse(_store, method):
        cause = DatabaseError("content", "22P05")
        raise RunStoreError("persistence_failed", method, "database operation failed", {"cause": cause})

    return Fault("refused", before=True, strike=refuse)


@pytest.mark.parametrize("fault", [hang(), hang(before=False), error_before(), refused()], ids=lambda each: each.name)
@pytest.mark.parametrize("of", ["park", "renew", "acquire"])
async def test_it_ends_in_time_whatever_a_store_does(fault, of):
    began = asyncio.Event()

    @step(idempotent=True)
    async def act() -> None:
        began.set()
        await asyncio.sleep(0.05)

    @workflow("acting")
    async def acting(ctx: Context) -> None:
        while True:
            await ctx.step(act)

    async with open_sqlite(":memory:") as stores:
        faulty = FaultStores(stores, at=2 if of == "acquire" else 1, of=of, times=10**6, fault=fault)
        worker = Worker(faulty.stores, [acting], telemetry=False, grace=timedelta(seconds=0.2), poll=0.05)
        await worker.client.start(acting)
        async with worker:
            await began.wait()
            if of != "park":
                while not faulty.struck:
                    await asyncio.sleep(0.01)
            left_at = time.monotonic()
        assert time.monotonic() - left_at < 0.2 + 5


async def test_a_body_that_ends_in_its_grace_is_waited_for():
    @step(idempotent=True)
    async def act() -> int:
        began.set()
        await asyncio.sleep(0.3)
        return 7

    @workflow("acting")
    async def acting(ctx: Context) -> int:
        return await ctx.step(act)

    began = asyncio.Event()
    async with open_sqlite(":memory:") as stores:
        worker = Worker(stores, [acting], telemetry=False, grace=timedelta(seconds=20))
        run = await worker.client.start(acting)
        async with worker:
            await began.wait()
        [attempt] = (await worker.client.history(run)).attempts
        assert (attempt.state, attempt.outcome) == ("succeeded", "7")
