"""What authors do to an engine without meaning to: whatever it is, it ends their own run and nobody else's."""

import asyncio
import contextlib
import functools
import gc
import threading
from datetime import timedelta

import pytest

from belay_core import Context, DefinitionError, RunFailed, StepFailed, Worker, step, workflow
from belay_core.engine import unwind
from belay_testing.drive import decide, run_ready, vanish


class Odd(BaseException):
    """Not an Exception."""


ESCAPING = [StopIteration(), StopAsyncIteration(), GeneratorExit(), SystemExit(3), Odd("x"), asyncio.CancelledError()]


@pytest.mark.parametrize("error", [*ESCAPING, RecursionError("deep")], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("threaded", [True, False])
async def test_whatever_a_step_raises_is_a_failed_step(bench, error, threaded):
    def in_thread() -> None:
        raise error

    async def in_loop() -> None:
        raise error

    @workflow("escaping")
    async def escaping(ctx: Context) -> str:
        try:
            await ctx.step(in_thread if threaded else in_loop)
        except StepFailed as failed:
            return failed.type
        return "passed"

    run = await bench.client.start(escaping)
    await bench.execute_due(escaping)
    # Python itself turns a StopIteration that leaves a coroutine into a RuntimeError.
    assert await run.result() in {type(error).__name__, "RuntimeError"}


@pytest.mark.parametrize("error", ESCAPING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["body", "branch", "condition"])
async def test_whatever_a_body_raises_fails_its_run_and_no_other(bench, error, where):
    def raising(*_args) -> bool:
        raise error

    @workflow("raising")
    async def flow(ctx: Context) -> None:
        async def branch(c: Context, item: int) -> None:
            raising()

        if where == "branch":
            await ctx.map(branch, [1])
        if where == "condition":
            await ctx.gate("boss", subject=1, when=raising)
        raising()

    @workflow("other")
    async def other(ctx: Context) -> str:
        return "fine"

    run, another = await bench.client.start(flow), await bench.client.start(other)
    await bench.execute_due(flow, other)
    with pytest.raises(RunFailed):
        await run.result()
    assert await another.result() == "fine"


async def grace_begun(clock):
    """A worker that leaves waits for its running steps, five seconds at most."""
    while all(due - clock.elapsed() != 5_000 for due, *_ in clock._sleepers):
        await asyncio.sleep(0)


async def test_a_step_that_swallows_every_cancel_does_not_hold_up_a_leaving_worker(bench):
    begun, end = asyncio.Event(), asyncio.Event()

    @step(idempotent=True)
    async def stubborn() -> None:
        begun.set()
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    @workflow("stubborn")
    async def flow(ctx: Context) -> None:
        await ctx.step(stubborn)

    await bench.client.start(flow)
    async with Worker(bench.stores, [flow], grace=timedelta(seconds=5)) as worker:
        await begun.wait()
        leaving = asyncio.create_task(worker.leave())
        await grace_begun(bench.clock)
        bench.clock.advance(5_000)
        await asyncio.wait_for(leaving, 5)
        end.set()


async def test_a_body_that_outlasts_its_run_is_cancelled_at_its_next_call(bench, monkeypatch):
    """An error in that place would be tried again at once by code that tries again whatever it is told."""
    begun, go, reported = asyncio.Event(), asyncio.Event(), asyncio.Queue()
    monkeypatch.setattr(unwind, "_ROUNDS", 1)
    monkeypatch.setattr(unwind, "_PATIENCE", 0.01)

    @workflow("outlasting")
    async def run_uncancelled(ctx: Context) -> None:
        begun.set()
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()
        try:
            await ctx.sleep(timedelta(days=1))
        except BaseException as error:
            reported.put_nowait(type(error))
            raise

    await bench.client.start(run_uncancelled)
    async with bench.worker(run_uncancelled) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        for handle in worker.dispatcher.handles():
            handle.lose()
        await executing
        go.set()
        async with asyncio.timeout(5):
            assert await reported.get() is asyncio.CancelledError


async def test_a_worker_leaves_in_time_though_a_body_that_has_ended_left_a_step_hanging(bench):
    begun, end = asyncio.Event(), asyncio.Event()

    @step
    async def hanging() -> None:
        begun.set()
        await end.wait()

    @workflow("careless")
    async def careless(ctx: Context) -> str:
        bench.task = asyncio.create_task(ctx.step(hanging))
        await begun.wait()
        return "ended"

    run = await bench.client.start(careless)
    async with Worker(bench.stores, [careless], grace=timedelta(seconds=5)) as worker:
        await begun.wait()
        leaving = asyncio.create_task(worker.leave())
        await grace_begun(bench.clock)
        bench.clock.advance(5_000)
        await asyncio.wait_for(leaving, 5)
    # Nobody knows whether the step has done its work, so the run is not completed.
    assert (await bench.client.explain(run)).state == "needs_review"


async def test_cleaning_up_that_takes_a_while_is_not_interrupted(bench):
    @workflow("tidy")
    async def tidy(ctx: Context) -> None:
        try:
            await ctx.gate("boss", subject=1)
        finally:
            await asyncio.sleep(0.3)
            bench.effects.append("clean")

    await bench.client.start(tidy)
    await bench.execute_due(tidy)
    assert bench.effects == ["clean"]


async def test_tasks_nobody_refers_to_survive_the_garbage_collector(bench):
    seen = set()

    @step(idempotent=True)
    async def collecting(number: int) -> int:
        gc.collect()
        await asyncio.sleep(0)
        gc.collect()
        return number

    @workflow("loose")
    async def loose(ctx: Context) -> None:
        async def side(c: Context, number: int) -> None:
            seen.add(await c.step(collecting, number))

        for number in range(3):
            asyncio.create_task(side(ctx.branch("side"), number))  # noqa: RUF006  (that is what is tried)
        await ctx.gate("boss", subject=1)

    run = await bench.client.start(loose)
    async with bench.worker(loose) as worker:
        await run_ready(worker)
        await decide(worker, run)
    await run.result()
    assert seen == {0, 1, 2}


async def test_a_context_is_of_no_use_after_its_run_has_ended_or_in_another_thread(bench):
    kept, over = [], asyncio.Event()

    async def work() -> None:
        bench.effects.append("work")

    def from_a_thread(_number: int) -> None:
        kept[0].step(work)

    @workflow("leaking")
    async def leaking(ctx: Context) -> str:
        kept.extend([ctx, ctx.branch("late")])

        async def late() -> None:
            await over.wait()
            await kept[1].step(work)

        kept.append(asyncio.create_task(late()))
        with contextlib.suppress(StepFailed):
            await ctx.step(from_a_thread, 1)
        return "swallowed"

    run = await bench.client.start(leaking)
    await bench.execute_due(leaking)
    with pytest.raises(RunFailed, match="not by threads"):
        await run.result()
    over.set()
    await asyncio.wait([kept[2]])
    assert kept[2].cancelled()
    with pytest.raises(DefinitionError, match="another task"):
        kept[0].step(work)
    assert bench.effects == []


async def test_a_step_that_waits_for_a_thread_is_never_begun_once_its_run_is_lost(bench):
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @step(idempotent=True)
    def occupying() -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(10)

    @step(idempotent=True)
    def queued() -> None:
        bench.effects.append("queued")

    @workflow("crowded")
    async def crowded(ctx: Context) -> None:
        await asyncio.gather(ctx.step(occupying), ctx.step(queued))

    await bench.client.start(crowded)
    async with Worker(bench.stores, [crowded], background=False, threads=1) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        await vanish(worker)
        await executing
    go_on.set()
    await asyncio.sleep(0.02)
    assert bench.effects == []


async def test_a_wrapper_is_not_taken_for_the_function_it_wraps(bench):
    async def plain() -> str:
        return "plain"

    @workflow("wrapping")
    async def wrapping(ctx: Context) -> str:
        first = await ctx.step(plain)

        @functools.wraps(plain)
        async def wrapper() -> str:
            return f"wrapped {await plain()}"

        return f"{first}, {await ctx.step(wrapper)}"

    run = await bench.client.start(wrapping)
    await bench.execute_due(wrapping)
    assert await run.result() == "plain, wrapped plain"


class Nameless:
    async def __call__(self, ctx: Context, item: int) -> int:
        return item


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ctx, calls: ctx.gather(*calls), "gather: it takes functions of a context"),
        (lambda ctx, calls: ctx.map(Nameless(), [1]), "map: a body without a name of its own needs name="),
    ],
)
async def test_what_cannot_be_a_branch_is_refused_by_name(bench, call, message):
    async def work() -> None: ...

    @workflow("mistaken")
    async def mistaken(ctx: Context) -> None:
        calls = [ctx.step(work)]
        try:
            await call(ctx, calls)
        finally:
            calls[0].close()

    run = await bench.client.start(mistaken)
    await bench.execute_due(mistaken)
    with pytest.raises(RunFailed, match=message):
        await run.result()


async def test_a_map_that_is_cancelled_cancels_the_branches_that_came_after_the_first_as_well(bench):
    cancelled: list[int] = []

    @workflow("limited")
    async def limited(ctx: Context) -> str:
        third = asyncio.Event()

        async def branch(_below: Context, item: int) -> None:
            if item == 2:
                third.set()
            if item:
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.append(item)

        mapping = asyncio.create_task(ctx.map(branch, range(4), limit=2))
        await third.wait()
        await asyncio.sleep(0)
        mapping.cancel()
        await asyncio.wait({mapping})
        return "cancelled" if mapping.cancelled() else "ended"

    run = await bench.client.start(limited)
    async with asyncio.timeout(10):
        await bench.execute_due(limited)
    assert (await run.result(), sorted(cancelled)) == ("cancelled", [1, 2])


async def test_a_branch_that_cancels_itself_is_cancelled_whatever_it_gives(bench):
    @workflow("self-cancelling")
    async def flow(ctx: Context) -> str:
        async def branch(_below: Context) -> str:
            asyncio.current_task().cancel()
            return "partial"

        try:
            await ctx.gather(branch)
        except asyncio.CancelledError:
            return "cancelled"
        return "gave"

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    assert await run.result() == "cancelled"
