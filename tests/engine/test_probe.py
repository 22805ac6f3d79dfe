import asyncio, contextlib, functools, threading, logging
from dataclasses import replace
from datetime import timedelta
import pytest
from belay_core import *
from belay_core import Context, Worker, step, workflow, StepFailed, RunFailed, StepCancelled, Retry, current_step
from belay_core.errors import EngineStoreError
from belay_testing.drive import decide, drain, vanish
from belay_testing import faults

pytestmark = pytest.mark.timeout(15)

async def ticking(bench, task, by=50):
    while not task.done():
        await asyncio.sleep(0.001)
        bench.clock.advance(by)
    return await task

def faulty(bench, *defs, at=0, fault=None, **kw):
    store = faults.FaultStore(bench.stores.engine, at=at, fault=fault)
    return store, Worker(replace(bench.stores, engine=store), defs, telemetry=False, background=False, **kw)

async def test_a1_lapse_reply_lost(bench):
    @workflow("w")
    async def w(ctx: Context) -> str:
        return type(await ctx.gate("g", subject=1, lapse_after=timedelta(hours=1))).__name__
    run = await bench.client.start(w)
    await bench.drained(w)
    bench.clock.advance(timedelta(hours=1))
    store, worker = faulty(bench, w)
    orig = bench.stores.engine.lapse
    n = 0
    async def lapse(c):
        nonlocal n
        n += 1
        r = await orig(c)
        if n == 1: raise EngineStoreError("persistence_failed", "lapse", "x")
        assert n < 10
        return r
    store.lapse = lapse
    async with worker:
        await ticking(bench, asyncio.create_task(drain(worker)))
    assert await run.result() == "Lapsed"

async def test_a2_history_unreachable_for_a_while(bench):
    @workflow("w")
    async def w(ctx: Context) -> str:
        return "x"
    run = await bench.client.start(w)
    store, worker = faulty(bench, w)
    orig = bench.stores.engine.history
    n = 0
    async def history(c):
        nonlocal n
        n += 1
        if n <= 3: raise EngineStoreError("persistence_failed", "history", "x")
        return await orig(c)
    store.history = history
    async with worker:
        await ticking(bench, asyncio.create_task(drain(worker)))
    assert (await bench.client.explain(run)).state == "completed"

async def test_a3_order_of_records_when_a_write_fails_for_a_moment(bench):
    firsts = []
    hang = asyncio.Event()
    stuck = asyncio.Event()
    doors = {"a": asyncio.Event(), "b": asyncio.Event()}
    @step(idempotent=True)
    async def work(n: str) -> str:
        await doors[n].wait()
        return n
    @step(idempotent=True)
    async def wait() -> None:
        stuck.set(); await asyncio.Event().wait()
    @workflow("w")
    async def w(ctx: Context) -> str:
        ts = {asyncio.create_task(ctx.step(work, n)): n for n in "ab"}
        done, _ = await asyncio.wait(ts, return_when=asyncio.FIRST_COMPLETED)
        firsts.append(sorted(ts[t] for t in done))
        await asyncio.wait(ts)
        await ctx.step(wait)
    run = await bench.client.start(w)
    store, worker = faulty(bench, w)
    orig = bench.stores.engine.record
    n = 0
    async def record(c):
        nonlocal n
        n += 1
        if n == 1:
            doors["b"].set()
            raise EngineStoreError("persistence_failed", "record", "x")
        return await orig(c)
    store.record = record
    async with worker:
        draining = asyncio.create_task(drain(worker))
        doors["a"].set()
        while not stuck.is_set():
            await asyncio.sleep(0.005); bench.clock.advance(10)
        await vanish(worker)
        await draining
    bench.clock.advance(30_001)
    stuck.clear()
    await bench.until_dead(w, at=stuck)
    assert firsts[0] == firsts[1]

class Odd(BaseException): ...

@pytest.mark.parametrize("error", [StopIteration(), StopAsyncIteration(), GeneratorExit(), SystemExit(3), Odd("x"), asyncio.CancelledError(), KeyboardInterrupt(), RecursionError("deep")])
@pytest.mark.parametrize("sync", [True, False])
async def test_b2_base_exceptions(bench, error, sync):
    if sync:
        @step
        def bad() -> None: raise error
    else:
        @step
        async def bad() -> None: raise error
    @workflow("w")
    async def w(ctx: Context) -> str:
        try:
            await ctx.step(bad)
        except StepFailed as e:
            return e.type
    run = await bench.client.start(w)
    await bench.drained(w)
    assert await run.result() in (type(error).__name__, "RuntimeError")

@pytest.mark.parametrize("error", [StopIteration(), GeneratorExit(), SystemExit(3), Odd("x"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_b3_base_exceptions_of_body(bench, error):
    @workflow("w")
    async def w(ctx: Context) -> str:
        raise error
    run = await bench.client.start(w)
    await bench.drained(w)
    with pytest.raises(RunFailed): await run.result()

async def test_b4_step_swallowing_cancel_does_not_hold_up_leaving(bench):
    begun = asyncio.Event(); end = asyncio.Event()
    @step(idempotent=True)
    async def stubborn() -> None:
        begun.set()
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()
    @workflow("w")
    async def w(ctx: Context) -> None:
        await ctx.step(stubborn)
    run = await bench.client.start(w)
    async with Worker(bench.stores, [w], grace=timedelta(seconds=5)) as worker:
        await begun.wait()
        left = asyncio.create_task(worker.leave())
        await asyncio.sleep(0.01)
        bench.clock.advance(5_000)
        done, _ = await asyncio.wait([left], timeout=5)
        end.set()
        assert done

async def test_b5_leaving_while_a_finished_body_awaits_an_open_step(bench):
    begun = asyncio.Event(); end = asyncio.Event()
    @step
    async def hung() -> None:
        begun.set()
        await end.wait()
    @workflow("w")
    async def w(ctx: Context) -> None:
        t = asyncio.create_task(ctx.step(hung))
        await begun.wait()
    run = await bench.client.start(w)
    async with Worker(bench.stores, [w], grace=timedelta(seconds=5)) as worker:
        await begun.wait()
        await asyncio.sleep(0.2)
        left = asyncio.create_task(worker.leave())
        await asyncio.sleep(0.05)
        bench.clock.advance(5_000)
        done, _ = await asyncio.wait([left], timeout=5)
        end.set()
        assert done
    print(await bench.states(run), (await bench.client.explain(run)).state)

async def test_b6_cancelled_before_its_body_began(bench):
    @step(idempotent=True)
    async def slow() -> None:
        bench.effects.append("slow")
        await asyncio.Event().wait()
    @workflow("w")
    async def w(ctx: Context) -> str:
        t = asyncio.create_task(ctx.step(slow))
        await asyncio.sleep(0)
        t.cancel()
        await asyncio.wait([t])
        return "over"
    run = await bench.client.start(w)
    await asyncio.wait_for(bench.drained(w), 5)
    assert await run.result() == "over"

async def test_b7_cancelled_twice_withdraws_all_the_same(bench):
    @workflow("w")
    async def w(ctx: Context) -> str:
        t = asyncio.create_task(ctx.gate("g", subject=1))
        await ctx.step(asked)
        t.cancel()
        await asyncio.sleep(0)
        t.cancel()
        await asyncio.wait([t])
        await ctx.step(asked)
        return "over"
    @step(idempotent=True)
    async def asked() -> None:
        while not bench.effects:
            bench.effects = list(await bench.client.approvals())
    run = await bench.client.start(w)
    await bench.drained(w)
    assert await run.result() == "over"
    assert (await bench.states(run))["g#1"] == ["cancelled"]

async def test_b8_sleep_cancelled_while_its_end_is_recorded(bench):
    holder = {}
    @workflow("w")
    async def w(ctx: Context) -> str:
        holder["t"] = t = asyncio.create_task(ctx.sleep(timedelta(seconds=1)))
        try:
            await t
            return "slept"
        except asyncio.CancelledError:
            await ctx.step(after)
            return "cancelled"
    @step(idempotent=True)
    async def after() -> None: ...
    run = await bench.client.start(w)
    store, worker = faulty(bench, w)
    orig = bench.stores.engine.record
    n = 0
    async def record(c):
        nonlocal n
        n += 1
        if n == 1: holder["t"].cancel()
        return await orig(c)
    store.record = record
    async with worker:
        await drain(worker)
        bench.clock.advance(1000)
        await drain(worker)
    print(await bench.states(run))
    assert (await bench.client.get(run)).status == "completed"

async def test_b9_orphan_its_author_gives_up(bench):
    stuck = asyncio.Event()
    @step
    async def pay() -> None:
        bench.effects.append("pay"); stuck.set(); await asyncio.Event().wait()
    @step(idempotent=True)
    async def tick() -> None:
        if len(bench.effects) and bench.clock.elapsed() > 1: await asyncio.sleep(0.05)
        elif bench.effects: await asyncio.Event().wait()
    @workflow("w")
    async def w(ctx: Context) -> str:
        t = asyncio.create_task(ctx.step(pay))
        await stuck.wait()
        await ctx.branch("b").step(tick)
        t.cancel()
        await asyncio.wait([t])
        return "went on"
    run = await bench.client.start(w)
    await bench.until_dead(w, at=stuck)
    await bench.drained(w)
    assert (await bench.client.explain(run)).state == "needs_review", await bench.states(run)

async def test_b10_word_on_an_earlier_orphan_does_not_count_for_a_later(bench):
    stuck = asyncio.Event(); hold = asyncio.Event(); hold.set(); begun = asyncio.Event()
    @step
    async def pay() -> None:
        bench.effects.append("pay"); stuck.set(); await asyncio.Event().wait()
    @step(idempotent=True)
    async def busy() -> None:
        begun.set()
        await hold.wait()
    @workflow("w")
    async def w(ctx: Context) -> None:
        await ctx.gather(lambda c: c.step(pay), lambda c: c.gate("g", subject=1), side)
    async def side(c):
        if len(bench.effects) == 2: await c.step(busy)
    run = await bench.client.start(w)
    await bench.until_dead(w, at=stuck)
    await bench.drained(w)
    await bench.client.resolve(run, Retry(), step_key="gather#1[0]/pay#1")
    stuck.clear()
    await bench.until_dead(w, at=stuck)
    assert bench.effects == ["pay", "pay"]
    hold.clear()
    async with bench.worker(w) as worker:
        d = asyncio.create_task(drain(worker))
        await begun.wait()
        await asyncio.sleep(0.05)
        await bench.client.approve(run, "g")
        await asyncio.sleep(0.1)
        stuck.set()
        hold.set()
        for _ in range(200):
            if d.done(): break
            await asyncio.sleep(0.01)
        effects = list(bench.effects)
        await vanish(worker); await d
    assert effects == ["pay", "pay"]

async def test_b12_own_stale_run(bench, caplog):
    begun = asyncio.Event(); end = asyncio.Event()
    @step(idempotent=True)
    def slow() -> None:
        bench.effects.append("slow")
        if len(bench.effects) == 1:
            bench.loop.call_soon_threadsafe(begun.set)
        bench.go.wait(5)
    bench.loop = asyncio.get_running_loop(); bench.go = threading.Event()
    @workflow("w")
    async def w(ctx: Context) -> str:
        await ctx.step(slow)
        return "x"
    run = await bench.client.start(w)
    async with bench.worker(w) as worker:
        d = asyncio.create_task(drain(worker))
        await begun.wait()
        bench.clock.advance(30_001)
        await worker.host.take()
        assert worker.host.in_hand == 1
        await asyncio.sleep(0.05)
        bench.go.set()
        await d
        await drain(worker)
        tasks = list(worker.host._tasks)
    assert await run.result() == "x"

async def test_b13_cleanup_that_takes_a_while_is_not_interrupted(bench):
    @workflow("w")
    async def w(ctx: Context) -> None:
        try:
            await ctx.gate("g", subject=1)
        finally:
            try:
                await asyncio.sleep(0.3)
                bench.effects.append("clean")
            except asyncio.CancelledError:
                bench.effects.append("interrupted")
                raise
    run = await bench.client.start(w)
    await bench.drained(w)
    assert bench.effects == ["clean"]

async def test_b14_unreadable_result_type_is_refused_before_the_step_runs(bench):
    async def pay() -> "Nowhere":
        bench.effects.append("pay")
    async def lock() -> threading.Lock:
        bench.effects.append("lock")
    @workflow("w")
    async def w(ctx: Context, which: int) -> None:
        await ctx.step([pay, lock][which])
    for n in (0, 1):
        run = await bench.client.start(w, n)
        await bench.drained(w)
        assert bench.effects == []
        with pytest.raises(RunFailed, match="DefinitionError"): await run.result()

async def test_b15_wrapped_function_is_not_taken_for_what_it_wraps(bench):
    async def plain() -> str: return "plain"
    @workflow("w")
    async def w(ctx: Context) -> str:
        a = await ctx.step(plain)
        @functools.wraps(plain)
        async def wrapped() -> str: return "wrapped"
        return a + await ctx.step(wrapped)
    run = await bench.client.start(w)
    await bench.drained(w)
    assert await run.result() == "plainwrapped"

async def test_b16_gather_of_calls_is_refused(bench):
    async def a() -> str: return "plain"
    @workflow("w")
    async def w(ctx: Context) -> str:
        c = ctx.step(a)
        try:
            await ctx.gather(c)
        finally: c.close()
    run = await bench.client.start(w)
    await bench.drained(w)
    with pytest.raises(RunFailed, match="DefinitionError"): await run.result()

async def test_b17_map_with_partial(bench):
    async def a(x, ctx, i): return i
    class C:
        async def __call__(self, ctx, i): return i
    @workflow("w")
    async def w(ctx: Context, n: int) -> str:
        await ctx.map([functools.partial(a, 1), C()][n], [1])
    for n in (0,1):
        run = await bench.client.start(w, n)
        await bench.drained(w)
        with pytest.raises(RunFailed, match="name"): await run.result()

async def test_b18_ctx_from_thread(bench):
    @workflow("w")
    async def w(ctx: Context) -> str:
        @step(name="t")
        def t() -> None:
            ctx.step(t)
        await ctx.step(t)
    run = await bench.client.start(w)
    await bench.drained(w)
    with pytest.raises(RunFailed, match="context"): await run.result()

async def test_b19_a_step_that_ends_although_cut_counts(bench):
    begun = asyncio.Event()
    @step(timeout=timedelta(seconds=1))
    async def pay() -> str:
        begun.set()
        try: await asyncio.Event().wait()
        except asyncio.CancelledError: return "paid"
    @workflow("w")
    async def w(ctx: Context) -> str:
        return await ctx.step(pay)
    run = await bench.client.start(w)
    async with bench.worker(w) as worker:
        d = asyncio.create_task(drain(worker))
        await begun.wait()
        bench.clock.advance(1000)
        await d
    assert await run.result() == "paid"

async def test_b20_long_backoff(bench):
    @step(retries=1, backoff=timedelta(days=1))
    async def bad() -> None: raise OSError
    @workflow("w")
    async def w(ctx: Context) -> None:
        await ctx.step(bad)
    run = await bench.client.start(w)
    await bench.drained(w)
    assert (await bench.client.get(run)).waiting.wake_at_ms == bench.clock.now() //1 + 86_400_000

async def test_b21_enormous(bench):
    @workflow("w")
    async def w(ctx: Context, n: int) -> None:
        if n == 0: await ctx.sleep(timedelta.max)
        if n == 1: await ctx.gate("g", subject=1, lapse_after=timedelta.max)
        if n == 2: await ctx.step(bad)
        if n == 3: await ctx.step(long)
    @step(retries=1000, backoff=timedelta.max)
    async def bad() -> None: raise OSError
    @step(timeout=timedelta.max)
    async def long() -> None: ...
    for n in range(4):
        run = await bench.client.start(w, n)
        await bench.drained(w)
        print(n, await bench.client.explain(run))

async def test_b23_now_after_map(bench):
    @step(idempotent=True)
    async def t(n: int) -> None: bench.clock.advance(1000)
    @workflow("w")
    async def w(ctx: Context) -> float:
        a = ctx.now()
        await ctx.map(t, [1, 2])
        return (ctx.now() - a).total_seconds()
    run = await bench.client.start(w)
    await bench.drained(w)
    assert await run.result() == 2.0

async def test_b24_deep_arguments(bench):
    async def t(n) -> None: ...
    @workflow("w")
    async def w(ctx: Context, n: int) -> None:
        a = []
        if n == 0: a.append(a)
        if n == 1:
            for _ in range(5000): a = [a]
        if n == 2: a = 10**5000
        await ctx.step(t, a)
    for n in range(3):
        run = await bench.client.start(w, n)
        await bench.drained(w)
        with pytest.raises(RunFailed, match="arguments"): await run.result()
