"""A failed or cancelled run that an operator retries: what is recorded stays, what failed it is done again."""

import asyncio
import contextlib
import json
from datetime import timedelta
from typing import Any

import pytest

from belay_core import (
    Context,
    GiveUp,
    InvalidInput,
    InvalidTransitionError,
    Retry,
    RunCancelled,
    RunFailed,
    RunNotFoundError,
    StepContext,
    StepFailed,
    Workflow,
    gate,
    step,
    workflow,
)
from belay_core.records.run import RunStatus
from belay_testing.drive import decide, run_ready

pytestmark = pytest.mark.usefixtures("broken")
DOWN = {"charge"}


@pytest.fixture
def broken():
    """What fails just now."""
    DOWN.clear()
    DOWN.add("charge")


def works(name: str, effects: list[Any], value: Any = None) -> str:
    effects.append(name if value is None else (name, value))
    if name in DOWN:
        raise OSError(f"{name} is down")
    return f"{name} done"


def shop(effects: list[Any], form: str) -> Any:
    @step
    async def fetch() -> str:
        return works("fetch", effects)

    @step(retries=1, backoff=timedelta(seconds=1))
    async def charge() -> str:
        return works("charge", effects)

    @step
    async def send() -> str:
        return works("send", effects)

    @workflow("shop")
    async def function_form(ctx: Context) -> str:
        await ctx.step(fetch)
        await ctx.step(charge)
        await ctx.gate("end", subject=1)
        return await ctx.step(send)

    class ClassForm(Workflow[None, str]):
        @step
        async def fetch(self, ctx: StepContext[None]) -> str:
            return works("fetch", effects)

        @step(retries=1, backoff=timedelta(seconds=1))
        async def charge(self, ctx: StepContext[None]) -> str:
            return works("charge", effects)

        @gate
        def end(self, ctx: StepContext[None]) -> int:
            return 1

        @step
        async def send(self, ctx: StepContext[None]) -> str:
            return works("send", effects)

    return function_form if form == "function" else ClassForm


async def failed(bench: Any, flow: Any, *given: Any) -> Any:
    run = await bench.client.start(flow, *given)
    async with bench.worker(flow) as worker:
        await run_ready(worker)
        bench.clock.advance(5_000)
        await run_ready(worker)
    with pytest.raises(RunFailed):
        await run.result()
    return run


@pytest.mark.parametrize("form", ["function", "class"])
async def test_a_failed_run_goes_on_from_its_records(bench, form):
    flow = shop(bench.effects, form)
    run = await failed(bench, flow)
    assert (await bench.client.explain(run)).ways_out == (f"belay retry {run.run_id}",)
    DOWN.clear()
    retried = await bench.client.retry(run, by="ada", reason="the bank is back")
    assert retried.step_keys == ("charge#1",)
    async with bench.worker(flow) as worker:
        await run_ready(worker)
        await decide(worker, run, "end")
    assert await run.result() == "send done"
    assert bench.effects == ["fetch", "charge", "charge", "charge", "send"]
    assert (await bench.states(run))["charge#1"] == ["failed", "failed", "succeeded"]
    [entry] = [each for each in await bench.client.journal(run) if each.kind == "belay.retried"]
    said = json.loads(entry.facts)
    assert (said["by"], said["reason"], said["status"], said["steps"]) == (
        "ada",
        "the bank is back",
        "failed",
        ["charge#1"],
    )
    assert said["error"]["type"] == "StepFailed"


async def test_the_failed_step_has_all_its_retries_again(bench):
    flow = shop(bench.effects, "function")
    run = await failed(bench, flow)
    await bench.client.retry(run)
    async with bench.worker(flow) as worker:
        await run_ready(worker)
        bench.clock.advance(5_000)
        await run_ready(worker)
    with pytest.raises(RunFailed, match="charge is down"):
        await run.result()
    assert bench.counted()["charge"] == 4


async def test_what_the_body_did_upon_the_failure_stands_and_need_not_happen_again(bench):
    @step
    async def charge(amount: int) -> str:
        return works("charge", bench.effects, amount)

    @step
    async def apologize() -> str:
        return works("apologize", bench.effects)

    @step
    async def ship() -> str:
        return works("ship", bench.effects)

    def order(amount: int) -> Any:
        @workflow("order")
        async def body(ctx: Context) -> str:
            try:
                await ctx.step(charge, amount)
            except StepFailed as error:
                await ctx.step(apologize)
                raise LookupError("order") from error
            await ctx.gate("end", subject=1)
            return await ctx.step(ship)

        return body

    run = await failed(bench, order(7))
    DOWN.clear()
    await bench.client.retry(run)
    async with bench.worker(order(8)) as worker:
        await run_ready(worker)
        await decide(worker, run, "end")
    assert await run.result() == "ship done"
    assert bench.effects == [("charge", 7), "apologize", ("charge", 8), "ship"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_call_made_upon_the_failure_stands_for_none_with_another_input(bench, idempotent):
    @step
    async def charge() -> str:
        return works("charge", bench.effects)

    @step(idempotent=idempotent)
    async def send(text: str) -> str:
        bench.effects.append(text)
        return text

    @workflow("order")
    async def order(ctx: Context) -> str:
        try:
            await ctx.step(charge)
        except StepFailed:
            await ctx.step(send, "sorry")
            raise
        sent = await ctx.step(send, "thanks")
        await ctx.gate("end", subject=1)
        return sent

    run = await failed(bench, order)
    DOWN.clear()
    await bench.client.retry(run)
    async with bench.worker(order) as worker:
        await run_ready(worker)
        if not idempotent:
            assert bench.effects == ["charge", "sorry", "charge"]
            assert (await bench.client.get(run)).waiting.reason == "needs_review"
            await bench.client.resolve(run, Retry(), step_key="send#1")
            await run_ready(worker)
        await decide(worker, run, "end")
    assert await run.result() == "thanks"
    assert bench.effects == ["charge", "sorry", "charge", "thanks"]


async def test_every_failed_branch_is_tried_again_and_no_other(bench):
    @step
    async def charge(name: str) -> str:
        bench.effects.append(name)
        if DOWN and name in "bd":
            raise OSError(name)
        return name

    @workflow("people")
    async def people(ctx: Context) -> list[str]:
        return await ctx.map(charge, ["a", "b", "c", "d"])

    run = await failed(bench, people)
    DOWN.clear()
    assert len((await bench.client.retry(run)).step_keys) == 2
    await bench.execute_due(people)
    assert await run.result() == ["a", "b", "c", "d"]
    assert bench.counted() == {"a": 1, "b": 2, "c": 1, "d": 2}


async def test_what_a_task_group_cancelled_upon_the_failure_goes_on(bench):
    @step
    async def charge() -> str:
        return works("charge", bench.effects)

    @workflow("group")
    async def group(ctx: Context) -> str:
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(ctx.gate("end", subject=1))
            slept = tasks.create_task(ctx.sleep(timedelta(seconds=9)))
            tasks.create_task(ctx.step(charge))
        await slept
        return type(await asked).__name__

    run = await failed(bench, group)
    DOWN.clear()
    await bench.client.retry(run)
    async with bench.worker(group) as worker:
        await run_ready(worker)
        bench.clock.advance(9_000)
        await run_ready(worker)
        await decide(worker, run, "end")
    assert await run.result() == "Approved"
    assert bench.effects == ["charge", "charge"]


async def test_a_failure_that_the_body_handled_stays(bench):
    @step
    async def charge() -> str:
        return works("charge", bench.effects)

    def order(mended: bool) -> Any:
        @workflow("order")
        async def body(ctx: Context) -> str:
            with contextlib.suppress(StepFailed):
                await ctx.step(charge)
            if not mended:
                raise LookupError("a slip")
            return "by hand"

        return body

    run = await failed(bench, order(False))
    DOWN.clear()
    assert (await bench.client.retry(run)).step_keys == ()
    await bench.execute_due(order(True))
    assert await run.result() == "by hand"
    assert bench.effects == ["charge"]


async def test_a_cancelled_run_asks_again_what_it_asked(bench):
    DOWN.clear()
    flow = shop(bench.effects, "function")
    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    await bench.client.cancel(run)
    await bench.execute_due(flow)
    with pytest.raises(RunCancelled):
        await run.result()
    assert (await bench.client.explain(run)).ways_out == (f"belay retry {run.run_id}",)
    await bench.client.retry(run)
    async with bench.worker(flow) as worker:
        await run_ready(worker)
        assert (await bench.client.get(run)).status is RunStatus.SUSPENDED
        await decide(worker, run, "end")
    assert await run.result() == "send done"
    assert bench.effects == ["fetch", "charge", "send"]


async def test_an_orphan_with_which_the_run_was_given_up_is_asked_about_again(bench):
    begun = asyncio.Event()

    @step
    async def pay() -> str:
        bench.effects.append("pay")
        begun.set()
        if len(bench.effects) == 1:
            await asyncio.Event().wait()
        return "paid"

    @workflow("once")
    async def once(ctx: Context) -> str:
        return await ctx.step(pay)

    run = await bench.client.start(once)
    await bench.until_dead(once, at=begun)
    await bench.execute_due(once)
    await bench.client.resolve(run, GiveUp(), step_key="pay#1")
    await bench.client.retry(run)
    await bench.execute_due(once)
    assert (await bench.client.get(run)).waiting.reason == "needs_review"
    assert bench.effects == ["pay"]
    await bench.client.resolve(run, Retry(), step_key="pay#1")
    await bench.execute_due(once)
    assert await run.result() == "paid"


async def test_only_a_run_that_failed_or_was_cancelled_is_retried(bench):
    DOWN.clear()
    flow = shop(bench.effects, "function")
    run = await bench.client.start(flow)
    with pytest.raises(InvalidTransitionError, match="is pending: only a failed or cancelled run"):
        await bench.client.retry(run)
    with pytest.raises(RunNotFoundError):
        await bench.client.retry("nope")
    with pytest.raises(InvalidInput, match="reason"):
        await bench.client.retry(run, reason="\0")
    assert [each.kind for each in await bench.client.journal(run)] == ["created"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_step_that_was_cancelled_upon_the_failure_has_one_effect_that_counts(bench, idempotent):
    begun, may_end = asyncio.Event(), asyncio.Event()

    @step
    async def charge() -> str:
        await begun.wait()
        may_end.set()
        return works("charge", bench.effects)

    @step(idempotent=idempotent)
    async def print_label() -> str:
        begun.set()
        await may_end.wait()
        if idempotent and DOWN:
            await asyncio.Event().wait()
        bench.effects.append("label")
        return "label"

    @workflow("group")
    async def group(ctx: Context) -> str:
        async with asyncio.TaskGroup() as tasks:
            label = tasks.create_task(ctx.step(print_label))
            tasks.create_task(ctx.step(charge))
        await ctx.gate("end", subject=1)
        return await label

    run = await failed(bench, group)
    DOWN.clear()
    await bench.client.retry(run)
    async with bench.worker(group) as worker:
        await run_ready(worker)
        await decide(worker, run, "end")
    assert await run.result() == "label"
    assert bench.counted() == {"charge": 2, "label": 1}


async def test_a_worker_that_dies_after_the_retry_is_followed_by_one_that_goes_on_alike(bench):
    begun = asyncio.Event()

    @step
    async def charge() -> str:
        return works("charge", bench.effects)

    @step
    async def apologize() -> str:
        return works("apologize", bench.effects)

    @step(idempotent=True)
    async def ship() -> str:
        bench.effects.append("ship")
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return "shipped"

    @workflow("order")
    async def order(ctx: Context) -> str:
        try:
            await ctx.step(charge)
        except StepFailed:
            await ctx.step(apologize)
            raise
        return await ctx.step(ship)

    run = await failed(bench, order)
    DOWN.clear()
    await bench.client.retry(run)
    await bench.until_dead(order, at=begun)
    await bench.execute_due(order)
    assert await run.result() == "shipped"
    assert bench.counted() == {"charge": 2, "apologize": 1, "ship": 2}


async def test_a_run_is_retried_as_often_as_it_fails(bench):
    @step
    async def charge() -> str:
        return works("charge", bench.effects)

    @step
    async def send() -> str:
        return works("send", bench.effects)

    @workflow("order")
    async def order(ctx: Context) -> str:
        await ctx.step(charge)
        return await ctx.step(send)

    DOWN.add("send")
    run = await failed(bench, order)
    for _ in range(2):
        assert (await bench.client.retry(run)).step_keys == ("charge#1",)
        await bench.execute_due(order)
    DOWN.remove("charge")
    await bench.client.retry(run)
    await bench.execute_due(order)
    DOWN.clear()
    assert (await bench.client.retry(run)).step_keys == ("send#1",)
    await bench.execute_due(order)
    assert await run.result() == "send done"
    assert bench.effects == ["charge", "charge", "charge", "charge", "send", "send"]


async def test_a_gate_whose_condition_failed_is_asked_again(bench):
    def needed(subject: int) -> bool:
        works("charge", bench.effects)
        return True

    @workflow("asking")
    async def asking(ctx: Context) -> str:
        return type(await ctx.gate("end", subject=1, when=needed)).__name__

    run = await failed(bench, asking)
    DOWN.clear()
    assert (await bench.client.retry(run)).step_keys == ("end#1",)
    async with bench.worker(asking) as worker:
        await run_ready(worker)
        await decide(worker, run, "end")
    assert await run.result() == "Approved"
    assert bench.counted() == {"charge": 2}
