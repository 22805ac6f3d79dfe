"""The delay before a further attempt."""

from datetime import timedelta

import pytest

from belay_core import (
    Context,
    DefinitionError,
    Fail,
    InvalidInput,
    RunFailed,
    StepContext,
    StepFailed,
    TryAgain,
    Worker,
    Workflow,
    step,
    workflow,
)
from belay_core.engine.retry import LONGEST_DELAY, retry_delay
from belay_core.workflows.retry_rules import RetryRules
from belay_testing.drive import run_ready
from belay_testing.jitter import FixedJitter

SECOND = timedelta(seconds=1)


def rules(backoff: timedelta = SECOND, *, longest: timedelta | None = None, jitter: bool = True) -> RetryRules:
    return RetryRules(3, backoff, longest, jitter, None, None)


@pytest.mark.parametrize(
    ("failed", "expected"), [(0, 1_000), (1, 2_000), (4, 16_000), (12, 3_600_000), (10_000, 3_600_000)]
)
def test_a_delay_doubles_up_to_an_hour(failed, expected):
    assert retry_delay(rules(), failed, FixedJitter(1.0)) == expected
    assert retry_delay(rules(), failed, FixedJitter(0.0)) == expected // 2


def test_a_backoff_of_more_than_the_cap_stays_as_it_is():
    long = 3 * LONGEST_DELAY
    assert (
        retry_delay(rules(long), 0, FixedJitter(1.0)) == retry_delay(rules(long), 5, FixedJitter(1.0)) == 3 * 3_600_000
    )


async def test_steps_that_fail_together_are_not_tried_again_together(bench):
    @step(retries=1, idempotent=True)
    async def failing(number: int) -> int:
        raise ConnectionError("down")

    @workflow("outage")
    async def outage(ctx: Context) -> list[int]:
        return await ctx.map(failing, range(50))

    run = await bench.client.start(outage)
    async with Worker(bench.stores, [outage], telemetry=False, background=False) as worker:
        await run_ready(worker)
    due = {each.meta.partition('"retry_at":')[2].rstrip("}") for each in await bench.attempts(run)}
    assert len(due) > 25


def test_a_cap_of_its_own_and_no_jitter():
    capped = rules(longest=3 * SECOND, jitter=False)
    assert [retry_delay(capped, failed, FixedJitter(0.0)) for failed in range(4)] == [1_000, 2_000, 3_000, 3_000]


def no_connection(error: BaseException) -> bool:
    return isinstance(error, ConnectionError)


def broken_predicate(error: BaseException) -> bool:
    raise LookupError("of the predicate")


def form_of(form: str, effects: list, error: BaseException, **given):
    """A workflow of one step that fails twice with this error, and then succeeds."""

    def act() -> str:
        effects.append(type(error).__name__)
        if len(effects) < 3:
            raise error
        return "done"

    if form == "function":

        @step(retries=3, **given)
        def acting() -> str:
            return act()

        @workflow("acting")
        async def in_function(ctx: Context) -> str:
            return await ctx.step(acting)

        return in_function

    class Acting(Workflow[None, str]):
        @step(retries=3, **given)
        def acting(self, ctx: StepContext[None]) -> str:
            return act()

    return Acting


TRIED_AGAIN = [
    (ConnectionError("x"), {}, True),
    (TypeError("x"), {}, True),
    (PermissionError("x"), {}, False),
    (DefinitionError("x"), {}, False),
    (Fail("x"), {}, False),
    (TryAgain("x"), {}, True),
    (PermissionError("x"), {"retry_on": PermissionError}, True),
    (ValueError("x"), {"retry_on": (ConnectionError, TimeoutError)}, False),
    (TimeoutError("x"), {"retry_on": (ConnectionError, TimeoutError)}, True),
    (ConnectionError("x"), {"retry_on": no_connection}, True),
    (ValueError("x"), {"retry_on": no_connection}, False),
    (ConnectionError("x"), {"no_retry_on": no_connection}, False),
    (ValueError("x"), {"no_retry_on": no_connection}, True),
    (ConnectionResetError("x"), {"retry_on": ConnectionError, "no_retry_on": ConnectionResetError}, False),
    (TryAgain("x"), {"retry_on": ConnectionError}, True),
    (Fail("x"), {"retry_on": Fail}, False),
    (ValueError("x"), {"retry_on": broken_predicate}, False),
    (ValueError("x"), {"no_retry_on": broken_predicate}, False),
]


@pytest.mark.parametrize("form", ["function", "class"])
@pytest.mark.parametrize(("error", "given", "again"), TRIED_AGAIN)
async def test_which_errors_are_tried_again(bench, form, error, given, again, caplog):
    effects: list = []
    flow = form_of(form, effects, error, **given)
    run = await bench.client.start(flow)
    for _ in range(4):
        await bench.execute_due(flow)
        bench.clock.advance(60_000)
    found = await bench.client.get(run)
    assert (found.status, len(effects)) == (("completed", 3) if again else ("failed", 1))
    assert ("predicate" in caplog.text) is (broken_predicate in given.values())
    if not again:
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert type(error).__name__ in str(failed.value)


async def test_a_step_says_when_it_is_to_be_tried_again(bench):
    times: list[float] = []

    @step(retries=1)
    def limited() -> str:
        times.append(bench.clock.now())
        if len(times) < 2:
            raise TryAgain("too many requests", after=timedelta(seconds=90))
        return "done"

    @workflow("limited")
    async def flow(ctx: Context) -> str:
        return await ctx.step(limited)

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    bench.clock.advance(89_999)
    await bench.execute_due(flow)
    assert len(times) == 1
    bench.clock.advance(1)
    await bench.execute_due(flow)
    assert (await run.result(), len(times)) == ("done", 2)


async def test_where_its_tries_are_used_up_the_reason_is_the_error(bench):
    seen: list[str] = []

    @step(retries=1)
    def limited() -> str:
        raise TryAgain("too many requests", after=timedelta(0))

    @workflow("limited")
    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step(limited)
        except StepFailed as failed:
            seen.append(f"{failed.type} {failed.message}")
            return "given up"

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    await bench.execute_due(flow)
    assert (await run.result(), seen[-1]) == ("given up", "TryAgain too many requests")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"retry_on": "ConnectionError", "retries": 1}, "retry_on: must be an exception type"),
        ({"retry_on": (), "retries": 1}, "retry_on: must be an exception type"),
        ({"no_retry_on": (ValueError, 3), "retries": 1}, "no_retry_on: must be an exception type"),
        ({"retry_on": (no_connection,), "retries": 1}, "retry_on: must be an exception type"),
        ({"retry_on": int, "retries": 1}, "retry_on: must be an exception type"),
        ({"retry_on": ValueError}, "retry_on: .*give retries="),
        ({"no_retry_on": ValueError}, "no_retry_on: .*give retries="),
        ({"jitter": 0.5}, "jitter: must be True or False"),
        ({"max_backoff": timedelta(0)}, "max_backoff: must be a positive timedelta"),
        ({"max_backoff": timedelta(milliseconds=5)}, "max_backoff: must not be shorter than backoff"),
        ({"retry_if": ValueError}, "there is no rule retry_if; .*retry_on"),
    ],
)
def test_a_rule_that_is_broken_is_named(given, words):
    with pytest.raises(DefinitionError, match=words):

        @step(**given)
        def nothing() -> None: ...


def test_a_time_that_is_none_is_refused():
    for after in (5, timedelta(seconds=-1)):
        with pytest.raises(InvalidInput, match="after: must be a timedelta"):
            TryAgain("later", after=after)


def test_another_name_keeps_every_rule():
    @step(retries=2, max_backoff=SECOND, jitter=False, retry_on=ValueError, idempotent=True, kind="k", note=1)
    def one() -> int:
        return 1

    two = one.named("two")
    assert (two.name, two.retry, two.idempotent, two.kind, two.options) == (
        "two", one.retry, True, "k", {"note": 1},
    )  # fmt: skip
    assert one.name == "one"
