"""What an operator reads in the log: one line an event, with ids and error types and no values."""

import asyncio
import logging
import time
from datetime import timedelta

import pytest

from belay_core import Context, StepContext, Worker, Workflow, step, workflow
from belay_core.engine.log_lines import StoreTrouble, loop_blocked
from belay_core.errors import DatabaseError, RunStoreError
from belay_drivers.sqlite import open_sqlite
from belay_testing.clock import ManualClock
from belay_testing.drive import run_ready
from belay_testing.faults import FaultStores, error_before

SECRET = "4711-secret"


def lines(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "belay"]


def broken(form: str, *, retries: int):
    if form == "function":

        @step(retries=retries)
        def pay(what: str) -> None:
            raise ConnectionError(what)

        @workflow("paying")
        async def function(ctx: Context) -> None:
            await ctx.step(pay, SECRET)

        return function

    class Paying(Workflow[None, None]):
        workflow_name = "paying"

        @step(retries=retries)
        def pay(self, ctx: StepContext[None]) -> None:
            raise ConnectionError(SECRET)

    return Paying


@pytest.mark.parametrize("form", ["function", "class"])
async def test_a_failed_attempt_and_a_failed_run_are_said_once(bench, form, caplog):
    flow = broken(form, retries=1)
    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    name = f"run {run.run_id} (paying)"
    first = f"{name}: step pay#1, attempt 1 raised ConnectionError; it is tried again in 1.0 s"
    assert lines(caplog) == [first]
    bench.clock.advance(1_000)
    await bench.execute_due(flow)
    assert lines(caplog)[1:] == [
        f"{name}: step pay#1, attempt 2 raised ConnectionError; it is not tried again",
        f"{name} failed with StepFailed; see belay show {run.run_id}",
    ]
    assert SECRET not in caplog.text
    facts = caplog.records[1]
    assert (facts.run_id, facts.workflow, facts.step_key, facts.attempt, facts.error_type) == (
        run.run_id, "paying", "pay#1", 2, "ConnectionError",
    )  # fmt: skip


async def test_a_run_in_review_says_why_and_what_to_ask(bench, caplog):
    @step
    def pay() -> object:
        return object()

    @workflow("paying")
    async def paying(ctx: Context) -> None:
        await ctx.step(pay)

    run = await bench.client.start(paying)
    await bench.execute_due(paying)
    [line] = lines(caplog)
    assert line.startswith(f"run {run.run_id} (paying) waits for an operator (orphan at pay#1): ")
    assert line.endswith(f"; belay explain {run.run_id} says what can be done")
    assert caplog.records[-1].levelno == logging.ERROR


async def test_a_takeover_is_said(bench, caplog):
    stuck = asyncio.Event()

    @step(idempotent=True)
    async def hang() -> None:
        if not stuck.is_set():
            stuck.set()
            await asyncio.get_running_loop().create_future()

    @workflow("hanging")
    async def hanging(ctx: Context) -> None:
        await ctx.step(hang)

    run = await bench.client.start(hanging)
    await bench.until_dead(hanging, at=stuck)
    await bench.execute_due(hanging)
    [line] = [each for each in lines(caplog) if "taken over" in each]
    assert line.startswith(f"run {run.run_id} (hanging) was taken over, acquisition 2: ")


async def test_trouble_with_the_stores_is_said_once_and_its_end_with_a_count(caplog):
    clock = ManualClock()
    trouble = StoreTrouble(clock)
    trouble.succeeded()
    for number in range(5):
        error = RunStoreError("persistence_failed", "renew", "the database refused")
        error.__cause__ = DatabaseError("io", "57P01") if number else None
        trouble.failed("lease renewal", error)
    clock.advance(2_500)
    trouble.succeeded()
    trouble.succeeded()
    assert lines(caplog) == [
        "lease renewal failed: persistence_failed; trying again until it succeeds",
        "the stores answer again after 2.5 s and 5 failed calls",
    ]


async def test_a_write_that_fails_and_is_repeated_is_said(bench, caplog):
    @step(idempotent=True)
    async def act() -> int:
        return 1

    @workflow("acting")
    async def acting(ctx: Context) -> int:
        return await ctx.step(act)

    faulty = FaultStores(bench.stores, at=1, of="record", times=2, fault=error_before())
    run = await bench.client.start(acting)
    async with bench.worker_over(faulty, acting) as worker:
        executing = asyncio.create_task(run_ready(worker))
        while not executing.done():
            bench.clock.advance(100)
            await asyncio.sleep(0.001)
        await executing
    assert await run.result() == 1
    assert [each.split(":")[0].split(" after")[0] for each in lines(caplog)] == [
        "a write failed",
        "the stores answer again",
    ]


def test_a_blocked_loop_names_the_steps_that_were_executing(caplog):
    loop_blocked(999.0, ["r1/pay#1"])
    assert lines(caplog) == []
    loop_blocked(2_345.0, [f"r1/pay#{number}" for number in range(1, 6)])
    loop_blocked(1_000.0, [])
    named = "r1/pay#1, r1/pay#2, r1/pay#3 and 2 more"
    assert lines(caplog) == [
        f"the event loop was blocked for 2.3 s, and no lease was renewed; async steps that were executing: {named}",
        "the event loop was blocked for 1.0 s, and no lease was renewed; async steps that were executing: none",
    ]


async def test_a_step_that_blocks_the_loop_is_found(caplog):
    @step(idempotent=True)
    async def block() -> None:
        await asyncio.sleep(0.1)
        time.sleep(2.5)  # noqa: ASYNC251  (what is to be found)

    @workflow("blocking")
    async def blocking(ctx: Context) -> None:
        await ctx.step(block)

    async with open_sqlite(":memory:") as stores, Worker(stores, [blocking]) as worker:
        run = await worker.client.start(blocking)
        await run.result(timedelta(seconds=30))
    [line] = [each for each in lines(caplog) if "blocked" in each]
    assert line.endswith(f"executing: {run.run_id}/block#1")
