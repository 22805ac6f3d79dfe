"""A database that is away for a while costs time and nothing else; a worker that cannot keep its leases stops."""

import asyncio
from contextlib import contextmanager

import pytest

from belay_core import Context, Worker, step, workflow
from belay_testing.drive import run_ready, vanish
from belay_testing.faults import Fault, FaultStores, delay, error_before, hang

STALE = 30_001


async def with_time(bench, worker):
    """Drain, moving the clock whenever somebody waits for it."""
    executing = asyncio.create_task(run_ready(worker))
    while not executing.done():
        await asyncio.sleep(0.001)
        bench.clock.advance(bench.clock.next_due() or 0)
    await executing


async def test_a_run_whose_history_cannot_be_read_for_a_while_does_not_go_to_review(bench):
    @workflow("patient")
    async def patient(ctx: Context) -> str:
        return "done"

    run = await bench.client.start(patient)
    store = FaultStores(bench.stores, of="history", at=1, times=4, fault=error_before())
    async with bench.worker_over(store, patient) as worker:
        await with_time(bench, worker)
    assert (await bench.client.explain(run)).state == "completed"


async def test_answers_keep_their_order_where_one_of_the_writes_has_to_be_repeated(bench):
    doors = {name: asyncio.Event() for name in "ab"}
    firsts, stuck = [], asyncio.Event()

    @step(idempotent=True)
    async def work(name: str) -> str:
        await doors[name].wait()
        return name

    @step(idempotent=True)
    async def hang() -> None:
        stuck.set()
        await asyncio.Event().wait()

    @workflow("race")
    async def race(ctx: Context) -> None:
        tasks = {asyncio.create_task(ctx.step(work, name)): name for name in "ab"}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        firsts.append(sorted(tasks[task] for task in done))
        await asyncio.wait(tasks)
        await ctx.step(hang)

    async def fail_while_the_other_ends(store, method):
        doors["b"].set()
        await error_before().strike(store, method)

    await bench.client.start(race)
    fault = Fault("first record", before=True, strike=fail_while_the_other_ends)
    store = FaultStores(bench.stores, of="record", at=1, fault=fault)
    async with bench.worker_over(store, race) as worker:
        executing = asyncio.create_task(run_ready(worker))
        doors["a"].set()
        while not stuck.is_set():
            await asyncio.sleep(0.001)
            bench.clock.advance(min(bench.clock.next_due() or 0, 100))
        await vanish(worker)
        await executing
    bench.clock.advance(STALE)
    stuck.clear()
    await bench.until_dead(race, at=stuck)
    assert firsts == [["a"], ["a"]]


async def test_a_worker_whose_leases_nobody_keeps_breaks_off_and_says_so(bench, caplog):
    begun = asyncio.Event()

    @step(idempotent=True)
    async def slow() -> str:
        bench.effects.append("slow")
        begun.set()
        if len(bench.effects) == 1:
            await asyncio.Event().wait()
        return "slow"

    @workflow("kept")
    async def kept(ctx: Context) -> str:
        return await ctx.step(slow)

    async def break_down(_store, _method):
        raise RuntimeError("a defect of the driver")

    run = await bench.client.start(kept)
    store = FaultStores(bench.stores, of="renew", at=1, fault=Fault("defect", before=True, strike=break_down))
    worker = Worker(store.stores, [kept], telemetry=False)
    await worker.__aenter__()
    await begun.wait()
    bench.clock.advance(1_000)
    with pytest.raises(ExceptionGroup):
        await worker._working
    assert "the worker broke off" in caplog.text
    assert worker.dispatcher.in_hand == 0
    bench.clock.advance(STALE)
    await bench.execute_due(kept)
    assert await run.result() == "slow"


async def test_a_middleware_that_raises_ends_one_stretch_of_work_and_no_worker(bench, caplog):
    class Broken:
        @contextmanager
        def start(self, facts):
            yield None

        @contextmanager
        def execution(self, facts):
            raise LookupError("no collector")
            yield

        @contextmanager
        def step(self, facts):
            yield lambda outcome: None

        def gate(self, facts): ...

    @workflow("watched")
    async def watched(ctx: Context) -> str:
        return "done"

    run = await bench.client.start(watched)
    async with Worker(bench.stores, [watched], background=False, telemetry=False, middleware=[Broken()]) as worker:
        await run_ready(worker)
    assert "a run broke off" in caplog.text
    bench.clock.advance(STALE)
    await bench.execute_due(watched)
    assert await run.result() == "done"


async def test_a_worker_is_entered_once(bench):
    from belay_core import InvalidTransitionError

    @workflow("none")
    async def none(ctx: Context) -> None: ...

    worker = Worker(bench.stores, [none])
    async with worker:
        pass
    with pytest.raises(InvalidTransitionError, match="entered once"):
        await worker.__aenter__()


async def test_a_renewal_that_hangs_keeps_no_lease(bench):
    begun = asyncio.Event()

    @step(idempotent=True)
    async def hang_on() -> None:
        begun.set()
        await asyncio.Event().wait()

    @workflow("hanging_on")
    async def hanging_on(ctx: Context) -> None:
        await ctx.step(hang_on)

    run = await bench.client.start(hanging_on)
    faulty = FaultStores(bench.stores, at=1, fault=hang(), of="renew", times=100)
    async with Worker(faulty.stores, [hanging_on], telemetry=False) as worker:
        await begun.wait()
        [handle] = worker.dispatcher.handles()
        for _ in range(18):
            bench.clock.advance(1_000)
            await asyncio.sleep(0.005)
        assert not handle.lost
        for _ in range(4):
            bench.clock.advance(1_000)
            await asyncio.sleep(0.005)
        assert handle.lost
        assert faulty.calls.count("renew") == 1
    assert (await bench.client.get(run)).status == "running"


async def test_a_renewal_counts_from_when_it_was_sent(bench):
    begun = asyncio.Event()

    @step(idempotent=True)
    async def hold() -> None:
        begun.set()
        await asyncio.Event().wait()

    @workflow("holding")
    async def holding_on(ctx: Context) -> None:
        await ctx.step(hold)

    await bench.client.start(holding_on)
    faulty = FaultStores(bench.stores, at=1, fault=delay(bench.clock, 5), of="renew")
    stores = faulty.stores
    async with Worker(stores, [holding_on], telemetry=False, background=False) as worker:
        await worker.dispatcher.take()
        await begun.wait()
        [handle] = worker.dispatcher.handles()
        bench.clock.advance(1_000)
        sent_at = bench.clock.elapsed()
        renewing = asyncio.create_task(worker.dispatcher.keeper.renew())
        while not faulty.struck:
            await asyncio.sleep(0)
        bench.clock.advance(5_000)
        await renewing
        assert handle.confirmed_at == sent_at
        worker.dispatcher.drop()
        await worker.dispatcher.finish_all()
