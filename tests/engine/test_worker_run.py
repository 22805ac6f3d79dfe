"""How a worker is started and stopped by its process, and what of its start reaches what it executes."""

import asyncio
import contextvars
import threading
from datetime import timedelta

import pytest

from belay_core import Context, InvalidTransitionError, Worker, step, workflow
from belay_drivers.sqlite import open_sqlite

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="nothing")


@workflow("quick")
async def quick(ctx: Context) -> int:
    return 1


def in_a_thread(work) -> threading.Thread:
    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    return thread


def test_in_a_thread_it_runs_until_it_is_stopped():
    ready, results, workers = threading.Event(), [], []

    async def work() -> None:
        async with open_sqlite(":memory:") as stores:
            worker = Worker(stores, [quick])
            workers.append(worker)
            run = await worker.client.start(quick)
            reading = asyncio.create_task(run.result())
            reading.add_done_callback(lambda _: ready.set())
            await worker.run()
            results.append(reading.result())

    thread = in_a_thread(work)
    assert ready.wait(30)
    workers[0].stop()
    thread.join(30)
    assert (thread.is_alive(), results) == (False, [1])


def test_a_stop_before_it_runs_counts():
    async def work() -> None:
        async with open_sqlite(":memory:") as stores:
            worker = Worker(stores, [quick])
            worker.stop()
            await worker.run()

    thread = in_a_thread(work)
    thread.join(30)
    assert not thread.is_alive()


def test_a_second_stop_ends_the_grace():
    began, cut, workers = threading.Event(), [], []

    @step(idempotent=True)
    async def long() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cut.append(1)
            raise

    @workflow("longest")
    async def longest(ctx: Context) -> None:
        await ctx.step(long)

    async def work() -> None:
        async with open_sqlite(":memory:") as stores:
            workers.append(Worker(stores, [longest], grace=timedelta(seconds=60)))
            await workers[0].client.start(longest)
            await workers[0].run()

    thread = in_a_thread(work)
    assert began.wait(30)
    workers[0].stop()
    workers[0].stop()
    thread.join(30)
    assert (thread.is_alive(), cut) == (False, [1])


async def test_one_that_is_driven_by_hand_does_not_run_by_itself():
    async with open_sqlite(":memory:") as stores:
        with pytest.raises(InvalidTransitionError, match="background=False"):
            await Worker(stores, [quick], background=False).run()


async def test_what_surrounds_its_start_does_not_reach_what_it_executes():
    seen: list[str] = []

    @step
    def in_thread() -> None:
        seen.append(MARK.get())

    @step
    async def on_loop() -> None:
        seen.append(MARK.get())

    @workflow("marked")
    async def marked(ctx: Context) -> None:
        seen.append(MARK.get())
        await ctx.step(in_thread)
        await ctx.step(on_loop)

    async with open_sqlite(":memory:") as stores:
        MARK.set("the request that started the application")
        async with Worker(stores, [marked]) as worker:
            MARK.set("the caller")
            await (await worker.client.start(marked)).result()
    assert seen == ["nothing"] * 3
