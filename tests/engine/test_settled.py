"""Waits that end: with a time of their own, or when the run waits for a person."""

import asyncio
from datetime import timedelta

import pytest

from belay_core import (
    Completed,
    Context,
    Ended,
    InvalidInput,
    ResultTimeout,
    RunCancelled,
    RunFailed,
    RunNotFoundError,
    StepContext,
    Unfinished,
    Waiting,
    Workflow,
    gate,
    step,
    workflow,
)

NOW = timedelta(0)


@step
async def act(number: int) -> int:
    return number


@workflow("in_function")
async def in_function(ctx: Context, number: int) -> int:
    await ctx.gate("go", subject=number)
    return await ctx.step(act, number)


class InClass(Workflow[int, int]):
    @gate
    def go(self, ctx: StepContext[int]) -> int:
        return ctx.input

    @step
    def act(self, ctx: StepContext[int]) -> int:
        return ctx.input


@pytest.fixture(params=[in_function, InClass], ids=["function", "class"])
def flow(request):
    return request.param


async def test_a_wait_for_the_result_ends_with_its_time(bench, flow):
    run = await bench.client.start(flow, 7)
    with pytest.raises(ResultTimeout, match=f"run {run.run_id} has not ended yet; its state is pending") as late:
        await run.result(NOW)
    assert (late.value.state, isinstance(late.value, TimeoutError)) == ("pending", True)
    await bench.execute_due(flow)
    with pytest.raises(ResultTimeout, match="its state is approval"):
        await bench.client.result(run.run_id, timeout=NOW)


async def test_its_time_passes_by_the_clock_of_the_stores(bench, flow):
    run = await bench.client.start(flow, 7)
    waiting = asyncio.create_task(run.result(timedelta(seconds=60)))
    while not waiting.done():
        bench.clock.advance(1_000)
        await asyncio.sleep(0.001)
    assert isinstance(waiting.exception(), ResultTimeout)


async def test_a_run_settles_where_a_person_is_waited_for_and_where_it_ends(bench, flow):
    run = await bench.client.start(flow, 7)
    assert await run.settled(NOW) == Unfinished("pending")
    await bench.execute_due(flow)
    assert await run.settled() == Waiting("approval", "go#1")
    await bench.client.approve(run, "go")
    assert await run.settled(NOW) == Unfinished("approval")
    await bench.execute_due(flow)
    assert await run.settled() == Completed(7)
    assert await run.result(NOW) == 7


async def test_a_cancelled_run_has_settled(bench, flow):
    run = await bench.client.start(flow, 7)
    await bench.execute_due(flow)
    await bench.client.cancel(run)
    assert await run.settled(NOW) == Unfinished("approval")
    await bench.execute_due(flow)
    settled = await run.settled()
    assert isinstance(settled, Ended)
    assert isinstance(settled.error, RunCancelled)


async def test_a_failed_run_and_one_in_review_have_settled(bench):
    @step
    async def broken() -> None:
        raise ValueError("why")

    @step
    async def cut() -> None:
        return object()

    @workflow("failing")
    async def failing(ctx: Context) -> None:
        await ctx.step(broken)

    @workflow("reviewed")
    async def reviewed(ctx: Context) -> None:
        await ctx.step(cut)

    first, second = await bench.client.start(failing), await bench.client.start(reviewed)
    await bench.execute_due(failing, reviewed)
    settled = await first.settled()
    assert isinstance(settled, Ended)
    assert isinstance(settled.error, RunFailed)
    assert settled.error.type == "StepFailed"
    assert await second.settled() == Waiting("needs_review", "cut#1")


async def test_a_sleeping_run_waits_for_no_person(bench):
    @workflow("sleeping")
    async def sleeping(ctx: Context) -> None:
        await ctx.sleep(timedelta(hours=1))

    run = await bench.client.start(sleeping)
    await bench.execute_due(sleeping)
    assert await run.settled(NOW) == Unfinished("timer")


async def test_a_gate_that_may_lapse_waits_for_a_person_until_then(bench):
    @workflow("lapsing")
    async def lapsing(ctx: Context) -> str:
        return type(await ctx.gate("go", subject=1, lapse_after=timedelta(hours=1))).__name__

    run = await bench.client.start(lapsing)
    await bench.execute_due(lapsing)
    assert await run.settled(NOW) == Waiting("approval", "go#1")
    bench.clock.advance(3_600_001)
    assert await run.settled(NOW) == Unfinished("approval")
    await bench.execute_due(lapsing)
    assert await run.settled() == Completed("Lapsed")


async def test_what_does_not_exist_and_what_is_no_time_are_refused(bench):
    with pytest.raises(RunNotFoundError):
        await bench.client.handle("r-9").settled()
    run = await bench.client.start(in_function, 7)
    for wrong in (5, timedelta(seconds=-1)):
        with pytest.raises(InvalidInput, match="timeout: must be a timedelta"):
            await run.result(wrong)
        with pytest.raises(InvalidInput, match="timeout: must be a timedelta"):
            await run.settled(wrong)


@workflow("many")
async def many(ctx: Context, count: int) -> list[int]:
    async def one(inner: Context, number: int) -> int:
        answer = await inner.gate("go", subject=number)
        return getattr(answer, "subject", -1)

    return await ctx.map(one, list(range(count)))


@pytest.mark.parametrize("count", [120, 1_010])
async def test_every_gate_of_a_run_can_be_decided(bench, count):
    run = await bench.client.start(many, count)
    await bench.execute_due(many)
    last = f"one[{count - 1}]/go#1"
    keys = {each.step_key for each in (await bench.client.history(run)).approvals}
    [last] = [key for key in keys if f"[{count - 1}]" in key]
    with pytest.raises(InvalidInput, match=r"step_key: several gates of this name wait; name one of .*\[0\]"):
        await bench.client.approve(run, "go")
    await bench.client.approve(run, "go", step_key=last, edited=5)
    [decided] = [each for each in (await bench.client.history(run)).approvals if each.decision]
    assert (decided.step_key, decided.edited) == (last, "5")
