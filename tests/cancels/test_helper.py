"""``belay_cancels``: a worker cancelled anywhere leaves a run that another brings to its end."""

import asyncio

import pytest

from belay_core import Approved, Context, step, workflow

WORLD: list[str] = []


@pytest.fixture(autouse=True)
def _an_empty_world():
    WORLD.clear()


@step(idempotent=True)
async def interval(number: int) -> int:
    return number


@step
async def pay(number: int) -> int:
    WORLD.append(f"pay {number}")
    await asyncio.sleep(0)
    return number


@workflow("asking")
async def asking(ctx: Context, number: int) -> int:
    one, two = await ctx.map(interval, [number, 2])
    answer = await ctx.gate("boss", subject=one + two)
    assert isinstance(answer, Approved)
    return await ctx.step(pay, answer.subject)


async def test_a_workflow_that_survives_is_reported(belay_cancels):
    report = await belay_cancels(asking, 1, effects=WORLD, most=12)
    assert report.points >= 20
    assert report.executions["pay#1"] == 1
    assert report.outcome == "3"


async def test_a_body_that_leaves_a_task_behind_is_found(belay_cancels):
    kept = []

    @workflow("untidy")
    async def untidy(ctx: Context) -> int:
        kept.append(asyncio.ensure_future(asyncio.Event().wait()))
        return await ctx.step(interval, 1)

    try:
        with pytest.raises(
            AssertionError, match=r"the workflow does not survive being cancelled.*\n.*\n.*tasks? (?:is|are) left"
        ):
            await belay_cancels(untidy, most=6, times=[1])
    finally:
        for task in kept:
            task.cancel()
        await asyncio.gather(*kept, return_exceptions=True)
