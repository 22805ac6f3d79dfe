"""Steps are executed once, kept, retried, and replayed as they were."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from belay_core import Context, DefinitionError, Happened, RunFailed, StepFailed, current_step, gate, step, workflow
from belay_testing.drive import run_ready


async def test_a_step_is_executed_once_and_its_result_is_the_runs(bench):
    @step(idempotent=True)
    async def double(number: int) -> int:
        bench.effects.append("double")
        return number * 2

    @workflow("doubling")
    async def doubling(ctx: Context, number: int) -> int:
        return await ctx.step(double, number)

    run = await bench.client.start(doubling, 21)
    await bench.execute_due(doubling)
    assert await run.result() == 42
    assert bench.effects == ["double"]


async def test_a_sync_step_runs_in_a_thread_and_knows_its_key(bench):
    seen = []

    @step
    def work() -> str:
        seen.append((threading.current_thread().name, current_step()))
        return "done"

    @workflow("threads")
    async def threads(ctx: Context) -> str:
        return await ctx.step(work)

    run = await bench.client.start(threads)
    await bench.execute_due(threads)
    assert await run.result() == "done"
    name, current = seen[0]
    assert name.startswith("belay-step")
    assert (current.run_id, current.name, current.key, current.attempt) == (
        run.run_id,
        "work",
        f"{run.run_id}/work#1",
        1,
    )


async def test_a_failing_step_is_tried_again_with_a_doubling_wait_and_one_key(bench):
    keys = []

    @step(retries=3, idempotent=True)
    async def flaky() -> str:
        keys.append(current_step().key)
        if len(keys) < 4:
            raise OSError("not yet")
        return "at last"

    @workflow("stubborn")
    async def stubborn(ctx: Context) -> str:
        return await ctx.step(flaky)

    run = await bench.client.start(stubborn)
    waits = []
    for _ in range(4):
        before = len(keys)
        async with bench.worker(stubborn) as worker:
            waited = 0
            while len(keys) == before:
                await run_ready(worker)
                if len(keys) == before:
                    bench.clock.advance(500)
                    waited += 500
            waits.append(waited)
    assert await run.result() == "at last"
    assert waits == [0, 1000, 2000, 4000]
    assert len(set(keys)) == 1
    assert (await bench.states(run))["flaky#1"] == ["failed", "failed", "failed", "succeeded"]


async def test_a_step_out_of_tries_raises_the_same_error_fresh_and_resumed(bench):
    caught = []
    stuck = asyncio.Event()

    @step
    async def broken() -> None:
        raise KeyError("gone")

    @step
    async def hang() -> None:
        stuck.set()
        await asyncio.Event().wait()

    @workflow("failing")
    async def failing(ctx: Context) -> None:
        try:
            await ctx.step(broken)
        except StepFailed as error:
            caught.append((error.step, error.type, error.message, str(error)))
        await ctx.step(hang)

    await bench.client.start(failing)
    await bench.until_dead(failing, at=stuck)
    await bench.execute_due(failing)
    assert len(caught) == 2
    assert caught[0] == caught[1] == ("broken", "KeyError", "'gone'", "step broken failed: KeyError: 'gone'")


async def test_an_error_nobody_catches_fails_the_run_with_type_and_message(bench):
    @workflow("failing")
    async def failing(ctx: Context) -> None:
        raise ZeroDivisionError("by hand")

    run = await bench.client.start(failing)
    await bench.execute_due(failing)
    with pytest.raises(RunFailed, match="ZeroDivisionError: by hand") as found:
        await run.result()
    assert (found.value.type, found.value.message) == ("ZeroDivisionError", "by hand")


@dataclass(frozen=True)
class Order:
    number: int
    total: Decimal
    due: date
    placed: datetime
    tags: tuple[str, ...]


async def test_a_step_gives_the_same_value_fresh_and_resumed(bench):
    order = Order(7, Decimal("12.50"), date(2026, 1, 31), datetime(2026, 1, 1, 12, 30, tzinfo=UTC), ("a", "b"))
    stuck = asyncio.Event()
    seen = []

    @step
    async def find() -> Order:
        return order

    @step
    async def raw() -> bytes:
        return b"\xff\x00"

    @step
    async def hang() -> None:
        stuck.set()
        await asyncio.Event().wait()

    @workflow("typed")
    async def typed(ctx: Context) -> None:
        seen.append((await ctx.step(find), await ctx.step(raw)))
        await ctx.step(hang)

    await bench.client.start(typed)
    await bench.until_dead(typed, at=stuck)
    await bench.execute_due(typed)
    assert seen == [(order, b"\xff\x00")] * 2


@pytest.mark.parametrize("value", [float("nan"), 2**70, {1: "a"}, object(), (1, 2), "\ud800"])
async def test_an_idempotent_step_whose_result_is_no_data_fails_for_good_after_one_execution(bench, value):
    @step(idempotent=True, retries=3)
    async def odd():
        bench.effects.append("odd")
        return value

    @workflow("odd")
    async def flow(ctx: Context) -> None:
        await ctx.step(odd)

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    with pytest.raises(RunFailed, match="ValueRefused"):
        await run.result()
    assert bench.effects == ["odd"]


async def test_a_result_that_is_no_data_after_an_effect_goes_to_review_and_is_never_retried(bench):
    @step(retries=3)
    async def pay():
        bench.effects.append("pay")
        return object()

    @workflow("paying")
    async def paying(ctx: Context) -> None:
        await ctx.step(pay)

    run = await bench.client.start(paying)
    await bench.execute_due(paying)
    await bench.execute_due(paying)
    explained = await bench.client.explain(run)
    assert explained.state == "needs_review"
    assert explained.because.startswith(
        "it needs an operator's word (orphan at pay#1): it took place, and its result cannot be kept: ValueRefused: "
    )
    assert bench.effects == ["pay"]
    await bench.client.resolve(run, bench.client.happened("paid"), step_key="pay#1")
    await bench.execute_due(paying)
    assert (await bench.client.get(run)).status == "completed"
    assert bench.effects == ["pay"]


class Hostile(Exception):
    def __init__(self, one, two):
        self.lock = threading.Lock()
        super().__init__(one, two)

    def __str__(self):
        raise RuntimeError("no text for you")


@pytest.mark.parametrize(
    "error", [Hostile(1, 2), ValueError("\ud800\x00"), ValueError("x" * 100_000), ExceptionGroup("g", [OSError()])]
)
async def test_whatever_a_step_raises_is_kept_and_ends_the_run(bench, error):
    @step
    async def nasty() -> None:
        raise error

    @workflow("nasty")
    async def flow(ctx: Context) -> None:
        await ctx.step(nasty)

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    with pytest.raises(RunFailed, match=type(error).__name__):
        await run.result()


async def test_a_step_is_cut_at_its_timeout_and_counts_as_failed(bench):
    begun = asyncio.Event()

    @step(timeout=timedelta(seconds=5), idempotent=True)
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    @workflow("slow")
    async def flow(ctx: Context) -> None:
        await ctx.step(slow)

    run = await bench.client.start(flow)
    async with bench.worker(flow) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        bench.clock.advance(timedelta(seconds=5))
        await executing
    with pytest.raises(RunFailed, match="TimeoutError"):
        await run.result()


async def test_a_step_that_may_not_be_repeated_goes_to_review_when_its_time_is_up(bench):
    charged, begun = [], asyncio.Event()

    @step(timeout=timedelta(seconds=5), retries=3)
    async def charge() -> str:
        charged.append(1)
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    @workflow("paying")
    async def paying(ctx: Context) -> str:
        return await ctx.step(charge)

    run = await bench.client.start(paying)
    async with bench.worker(paying) as worker:
        draining = asyncio.create_task(run_ready(worker))
        await begun.wait()
        bench.clock.advance(timedelta(seconds=5))
        await draining
        bench.clock.advance(timedelta(hours=2))
        await run_ready(worker)
        explained = await bench.client.explain(run)
        assert explained.state == "needs_review"
        assert "its time was up before it ended" in explained.because
        assert charged == [1]
        await bench.client.resolve(run, Happened('"paid"'), step_key="charge#1", by="ada")
        await run_ready(worker)
    assert await run.result() == "paid"
    assert charged == [1]


async def test_a_step_called_without_its_context_is_refused():
    @step
    async def pay() -> None: ...

    with pytest.raises(DefinitionError, match=r"ctx\.step\(pay"):
        pay()


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"retries": -1}, "retries: must be a whole number"),
        ({"retries": True}, "retries: must be a whole number"),
        ({"idempotent": 1}, "idempotent: must be True or False"),
        ({"timeout": timedelta(0)}, "timeout: must be a positive timedelta"),
        ({"backoff": 1}, "backoff: must be a positive timedelta"),
        ({"kind": 5}, "kind: must be text"),
    ],
)
def test_a_bad_rule_is_refused_when_the_step_is_declared(rules, message):
    async def pay() -> None: ...

    with pytest.raises(DefinitionError, match=message):
        step(**rules)(pay)


def test_lambdas_must_be_named_and_sync_steps_cannot_time_out():
    with pytest.raises(DefinitionError, match="no name of their own"):
        step(lambda: 1)
    assert step(name="one")(lambda: 1).name == "one"
    with pytest.raises(DefinitionError, match="timeout needs an async function"):
        step(name="one", timeout=timedelta(seconds=1))(lambda: 1)


@pytest.mark.parametrize(
    ("declare", "typed", "meant"),
    [
        (step, "retry", "retry_on or retries"),
        (step, "retrys", "retries or retry_on"),
        (step, "idempotant", "idempotent"),
        (step, "time_out", "timeout"),
        (step, "back_off", "backoff or max_backoff"),
        (gate, "laps_after", "lapse_after"),
        (gate, "on_rejection", "on_reject"),
    ],
)
def test_a_rule_that_is_misspelt_is_no_option(declare, typed, meant):
    with pytest.raises(DefinitionError, match=f"there is no rule {typed}; {meant} is meant"):
        declare(**{typed: 3})


def test_unknown_rules_are_kept_and_cannot_be_changed():
    given = {"team": "billing"}

    @step(kind="tool_call", **given)
    async def pay() -> None: ...

    given["team"] = "other"
    assert pay.options == {"team": "billing"}
    assert pay.kind == "tool_call"
    with pytest.raises(TypeError):
        pay.options["team"] = "x"  # type: ignore[index]


async def test_a_cancelled_run_leaves_no_attempt_running(bench):
    begun = asyncio.Event()

    @step
    async def charge() -> None:
        begun.set()
        await asyncio.Event().wait()

    @workflow("stopped")
    async def stopped(ctx: Context) -> None:
        await ctx.step(charge)

    run = await bench.client.start(stopped)
    await bench.until_dead(stopped, at=begun)
    await bench.client.cancel(run)
    await bench.execute_due(stopped)
    assert (await bench.client.explain(run)).state == "cancelled"
    assert await bench.states(run) == {"charge#1": ["orphaned"]}
    notes = [each.facts for each in await bench.client.journal(run) if each.kind == "noted"]
    assert [note for note in notes if "orphaned" in note and "charge#1" in note] != []
