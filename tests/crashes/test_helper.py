"""``belay_crashes``: workflows that survive everything are let pass, and those that do not are told why."""

import asyncio
import re
from datetime import timedelta

import pytest

from belay_core import Approved, Context, current_step, step, workflow

WORLD: list[str] = []


@pytest.fixture(autouse=True)
def _an_empty_world():
    WORLD.clear()


@step(idempotent=True)
async def look(number: int) -> int:
    WORLD.append(f"look {number}")
    return number


@step
async def pay(number: int) -> int:
    WORLD.append(f"pay {number}")
    return number


@step(retries=1)
def flaky(number: int) -> int:
    if current_step().attempt < 2:
        raise OSError("down")
    return number


@workflow("small")
async def small(ctx: Context) -> int:
    return await ctx.step(pay, 1)


@workflow("honest")
async def honest(ctx: Context, number: int) -> list[int]:
    one = await ctx.step(look, number)
    two = await ctx.step(pay, one + 1)
    return [one, two, await ctx.step(flaky, 3)]


async def test_a_workflow_that_survives_is_reported(belay_crashes):
    report = await belay_crashes(honest, 1, effects=WORLD)
    assert report.points > 30
    assert report.completed + report.needs_review == report.points
    assert report.needs_review > 0, "a kill inside a step that is not idempotent leaves somebody in doubt"
    assert report.executions == {"look#1": 1, "pay#1": 1, "flaky#1": 2}
    assert report.repeated == {"look#1": 2}
    assert report.outcome == "[1,2,3]"


async def test_gates_are_answered_as_requested(belay_crashes):
    @workflow("asking")
    async def asking(ctx: Context) -> str:
        clerk = await ctx.gate("clerk", subject=2)
        late = await ctx.gate("late", subject=3, lapse_after=timedelta(hours=1))
        return " ".join(type(each).__name__ for each in (clerk, late))

    report = await belay_crashes(asking, answers={"clerk": "rejected", "late": "nobody"})
    assert report.outcome == '"Rejected Lapsed"'
    assert (report.needs_review, report.points > 40) == (0, True)


async def test_branches_are_survived(belay_crashes):
    async def both(ctx: Context, number: int) -> int:
        return await ctx.step(look, number) + await ctx.step(pay, number)

    @workflow("branching")
    async def branching(ctx: Context) -> int:
        gate = asyncio.create_task(ctx.gate("boss", subject=3))
        pairs = await ctx.map(both, [1, 2, 3], limit=2)
        answer = await gate
        assert isinstance(answer, Approved)
        return sum(pairs)

    report = await belay_crashes(branching, effects=WORLD)
    assert list(report.executions.values()) == [1] * 6


async def test_an_effect_outside_of_any_step_is_found(belay_crashes):
    @workflow("careless")
    async def careless(ctx: Context) -> None:
        await ctx.step(look, 1)
        WORLD.append("mail")
        await ctx.step(pay, 1)

    with pytest.raises(AssertionError, match="'mail' took place outside of any step, 2 times instead of 1") as caught:
        await belay_crashes(careless, effects=WORLD)
    assert "killed after call" in str(caught.value)


async def test_a_body_that_follows_the_moment_is_found(belay_crashes):
    executions = []

    @workflow("moody")
    async def moody(ctx: Context) -> int:
        executions.append(1)
        await ctx.step(look, 1)
        return len(executions)

    with pytest.raises(AssertionError, match="ended otherwise than undisturbed"):
        await belay_crashes(moody)


async def test_a_kill_inside_a_transaction_is_survived_too(belay_crashes):
    calls = await belay_crashes(small, effects=WORLD)
    both = await belay_crashes(small, effects=WORLD, statements=True)
    assert both.points > 2 * calls.points
    assert 0 < both.needs_review < both.points


async def test_an_engine_that_acknowledges_before_it_commits_is_found(belay_crashes):
    from tests.crashes.planted import acknowledging_early

    with pytest.raises(AssertionError, match=re.escape("step pay#1 is not idempotent, and its attempt 1 was executed")):
        await belay_crashes(small, over_stores=acknowledging_early)
