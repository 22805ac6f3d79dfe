"""Bodies of steps that cancel, leak or hide: what they do to the task they run in harms nobody."""

import asyncio
import contextlib
import contextvars
from datetime import timedelta

import pytest

from belay_core import Client, Context, StepFailed, Worker, current_step, open_stores, step, workflow

SEEN: contextvars.ContextVar[int] = contextvars.ContextVar("seen", default=0)


def cancel_me() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def test_a_step_that_cancels_its_own_task_and_returns_has_succeeded(bench):
    async def careless() -> str:
        cancel_me()
        return "done"

    @workflow("flow")
    async def flow(ctx: Context) -> str:
        return f"{await ctx.step(careless)} {await ctx.step(careless)}"

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    assert await run.result() == "done done"
    assert set(await bench.states(run)) == {"careless#1", "careless#2"}


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_cancellation_that_comes_after_the_step_has_ended_does_not_reach_the_engine(bench, turns, idempotent):
    left: list[asyncio.Task[None]] = []

    @step(idempotent=idempotent)
    async def leaving() -> str:
        parent = asyncio.current_task()
        assert parent is not None

        async def late() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            parent.cancel()

        left.append(asyncio.create_task(late()))
        return "done"

    @workflow("flow")
    async def flow(ctx: Context) -> str:
        return await ctx.step(leaving)

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    assert await run.result() == "done"
    assert await bench.states(run) == {"leaving#1": ["succeeded"]}


async def test_a_cancellation_left_behind_does_not_end_the_wait_before_a_retry(bench):
    tasks = []

    @step(retries=1, idempotent=True)
    async def failing() -> int:
        tasks.append(asyncio.current_task())
        if len(tasks) == 1:
            raise ValueError
        return len(tasks)

    @workflow("flow")
    async def flow(ctx: Context) -> int:
        return await ctx.step(failing)

    run = await bench.client.start(flow)
    async with Worker(bench.stores, [flow]) as worker:
        while not await bench.states(run):
            await asyncio.sleep(0.001)
        for _ in range(3):
            tasks[0].cancel()
            await asyncio.sleep(0)
        bench.clock.advance(1_000)
        assert await asyncio.wait_for(run.result(), 10) == 2
        assert worker.dispatcher.in_hand <= 1


async def test_what_an_attempt_leaves_in_its_context_is_not_seen_by_the_next(bench):
    @step(retries=1, idempotent=True)
    async def marking() -> int:
        bench.effects.append(SEEN.get())
        SEEN.set(SEEN.get() + 1)
        if len(bench.effects) == 1:
            raise ValueError
        return current_step().attempt

    @workflow("flow")
    async def flow(ctx: Context) -> list[int]:
        SEEN.set(5)
        return [await ctx.step(marking), SEEN.get()]

    run = await bench.client.start(flow)
    async with Worker(bench.stores, [flow]):
        while not await bench.states(run):
            await asyncio.sleep(0.001)
        bench.clock.advance(1_000)
        assert await asyncio.wait_for(run.result(), 10) == [2, 5]
    assert bench.effects == [5, 5]


@pytest.mark.parametrize("timeout", [None, timedelta(hours=1)])
def test_a_step_that_raises_keyboard_interrupt_ends_the_process_and_tells_its_workflow_nothing(timeout):
    reported = []

    @step(timeout=timeout)
    async def interrupted() -> None:
        raise KeyboardInterrupt

    @workflow("flow")
    async def flow(ctx: Context) -> None:
        try:
            await ctx.step(interrupted)
        except (KeyboardInterrupt, StepFailed) as error:
            reported.append(error)

    async def main() -> None:
        async with open_stores("sqlite:///:memory:") as stores, Worker(stores, [flow], telemetry=False):
            await (await Client(stores).start(flow)).result()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert reported == []


async def test_a_condition_that_cancels_its_own_task_and_answers_is_heard(bench):
    async def needed(_subject: int) -> bool:
        cancel_me()
        return False

    @workflow("flow")
    async def flow(ctx: Context) -> str:
        return type(await ctx.gate("boss", subject=1, when=needed)).__name__

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    assert await run.result() == "NotNeeded"


@pytest.mark.parametrize("idempotent", [True, False])
async def test_timeouts_groups_and_swallowed_cancels_inside_a_step_stay_inside(bench, idempotent):
    async def failing() -> None:
        raise ValueError

    @step(idempotent=idempotent)
    async def busy() -> list[str]:
        found = []
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(10)
        except TimeoutError:
            found.append("timeout")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(10))
                group.create_task(failing())
        except* ValueError:
            found.append("group")
        cancel_me()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            found.append("swallowed")
        cancel_me()
        with contextlib.suppress(asyncio.CancelledError):
            async with asyncio.timeout(None):
                await asyncio.sleep(10)
        return found

    @workflow("flow")
    async def flow(ctx: Context) -> list[str]:
        await ctx.step(busy)
        task = asyncio.current_task()
        assert task is not None
        bench.effects.append(task.cancelling())
        return await ctx.step(busy)

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    assert await run.result() == ["timeout", "group", "swallowed"]
    assert bench.effects == [0]


async def test_a_failing_step_with_a_stray_cancel_is_a_failed_step(bench):
    async def careless() -> str:
        cancel_me()
        raise ValueError("x")

    @workflow("flow")
    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step(careless)
        except StepFailed as failed:
            return failed.type

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    assert await run.result() == "ValueError"
