"""What is refused when a step is declared or called, before anything is executed, and what is read of a function."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from belay_core import Context, DefinitionError, RunFailed, StepContext, Workflow, gate, step, workflow
from belay_core.workflows.registry import as_definition


def a_list():
    yield 1


async def an_async_list():
    yield 1


@pytest.mark.parametrize("fn", [a_list, an_async_list])
def test_a_generator_function_is_no_step(fn):
    with pytest.raises(DefinitionError, match=f"step {fn.__name__}: is a generator function; return a list"):
        step(fn)
    with pytest.raises(DefinitionError, match="step other: is a generator function"):
        step(name="other")(fn)
    with pytest.raises(DefinitionError, match=f"gate {fn.__name__}: is a generator function"):
        gate(fn)


def test_a_generator_method_is_no_step():
    with pytest.raises(DefinitionError, match="step parts: is a generator function"):

        class Parts(Workflow[None, int]):
            @step
            def parts(self, ctx: StepContext[None]):
                yield 1


async def test_a_plain_generator_function_is_refused_where_it_is_called(bench):
    @workflow("listing")
    async def listing(ctx: Context) -> None:
        await ctx.step(a_list)

    run = await bench.client.start(listing)
    await bench.execute_due(listing)
    with pytest.raises(RunFailed, match="is a generator function"):
        await run.result()


CHECKER_ONLY = """
from __future__ import annotations
from typing import TYPE_CHECKING
from belay_core import Context, StepContext, Workflow, gate, step, workflow
from belay_core.workflows.registry import as_definition
if TYPE_CHECKING:
    from decimal import Decimal

@step
def fetch(amount: Decimal) -> int:
    return 1

@workflow("one")
async def one(ctx: Context) -> int:
    return await ctx.step(fetch, 1)

class Two(Workflow[None, int]):
    @gate
    def ask(self, ctx: StepContext[None], *, extra: Decimal | None = None) -> int:
        return 1
    @step
    def last(self, ctx: StepContext[None], extra: Decimal | None = None) -> int:
        return 1

assert fetch.codec.encode(3) == "3"
for each in (one, Two):
    made = as_definition(each)
    assert made.result_codec.encode(3) == "3", made
assert made.steps[0].subject_annotation is int

class Three(Workflow[None, int]):
    @step
    def last(self, ctx: StepContext[None]) -> Decimal:
        return 1

@step
def priced() -> Decimal:
    return 1

for broken in (lambda: as_definition(Three), lambda: priced.codec):
    try:
        broken()
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_only_the_annotation_that_is_needed_is_read(tmp_path):
    file = tmp_path / "checked.py"
    file.write_text(CHECKER_ONLY)
    done = subprocess.run([sys.executable, file], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    remedy = "import the type it names outside of TYPE_CHECKING, at the top of the module"
    assert done.stdout.splitlines() == [
        f"DefinitionError workflow Three: step last: its return annotation cannot be read; {remedy}",
        f"DefinitionError step priced: its return annotation cannot be read; {remedy}",
    ]


@dataclass
class Bank:
    name: str
    paid: list

    @step
    async def pay(self, cents: int) -> str:
        self.paid.append(cents)
        return f"{self.name} paid {cents}"

    @step(name="refund", retries=1)
    def back(self, cents: int, note: str = "") -> str:
        self.paid.append(-cents)
        return f"{self.name} returned {cents} {note}"


async def test_a_method_of_a_plain_class_is_a_step(bench):
    bank, bodies = Bank("north", []), []

    @workflow("paying")
    async def paying(ctx: Context) -> list[str]:
        bodies.append(1)
        done = [await ctx.step(bank.pay, 5), await ctx.step(bank.back, 3, note="x")]
        done += await ctx.map(bank.pay, [7, 8])
        await ctx.gate("go", subject=1)
        return done

    run = await bench.client.start(paying)
    await bench.execute_due(paying)
    await bench.client.approve(run, "go")
    await bench.execute_due(paying)
    assert await run.result() == ["north paid 5", "north returned 3 x", "north paid 7", "north paid 8"]
    assert (sorted(bank.paid), len(bodies)) == ([-3, 5, 7, 8], 2)
    assert {each.step for each in await bench.attempts(run)} == {"go", "pay", "refund"}
    assert await Bank.pay.fn(bank, 1) == "north paid 1"


def test_a_step_of_the_class_form_stays_what_was_declared():
    class Paying(Workflow[None, int]):
        @step
        def pay(self, ctx: StepContext[None]) -> int:
            return 1

    paying = Paying()
    assert paying.pay is Paying.pay
    assert as_definition(paying).steps == [Paying.pay]


CALLS = [
    ((), {}, "missing a required argument: 'cents'"),
    ((1, 2, 3), {}, "too many positional arguments"),
    ((1,), {"to": "x", "cents": 2}, "multiple values for argument 'cents'"),
    ((1,), {"whom": "x"}, "got an unexpected keyword argument 'whom'"),
]


@pytest.mark.parametrize(("args", "kwargs", "why"), CALLS)
async def test_a_wrong_call_of_a_step_is_refused_before_it_begins(bench, args, kwargs, why):
    tried: list[int] = []

    @step(retries=5)
    def pay(cents: int, to: str = "") -> None:
        tried.append(cents)

    @workflow("paying")
    async def paying(ctx: Context) -> None:
        await ctx.step(pay, *args, **kwargs)

    run = await bench.client.start(paying)
    await bench.execute_due(paying)
    with pytest.raises(RunFailed, match=f"step pay: cannot be called so: {why}"):
        await run.result()
    assert (tried, await bench.attempts(run)) == ([], [])


async def test_every_right_call_is_let_through(bench):
    def plain(a, b=2, *rest, c=3, **more):
        return [a, b, list(rest), c, more]

    def keyword(*, a):
        return a

    @workflow("calling")
    async def calling(ctx: Context) -> list[object]:
        return [
            await ctx.step(plain, 1),
            await ctx.step(plain, 1, 5, 6, 7, c=8, d=9),
            await ctx.step(plain, b=1, a=2),
            await ctx.step(keyword, a=4),
            await ctx.step(step(name="most")(max), 1, 2),
        ]

    run = await bench.client.start(calling)
    await bench.execute_due(calling)
    assert await run.result() == [[1, 2, [], 3, {}], [1, 5, [6, 7], 8, {"d": 9}], [2, 1, [], 3, {}], 4, 2]


def test_what_is_no_workflow_and_no_step_is_told_with_the_remedy():
    @workflow("flow")
    async def flow(ctx: Context) -> None: ...

    async def plain(ctx: Context) -> None: ...

    @step
    def one() -> None: ...

    class Flow(Workflow[None, None]):
        @step
        def one(self, ctx: StepContext[None]) -> None: ...

    with pytest.raises(DefinitionError, match=r"workflow flow: is not called: start it with client\.start"):
        flow(None)
    for wrong, words in [
        (
            plain,
            "definitions: function is no workflow; this is a plain function: decorate it with @workflow\\('plain'\\)",
        ),
        (one, "definitions: Step is no workflow; this is a step: call it from a workflow"),
        (5, "definitions: int is no workflow; give what @workflow made"),
        (dict, "definitions: dict is no workflow; give what @workflow made"),
    ]:
        with pytest.raises(DefinitionError, match=words):
            as_definition(wrong)
    for wrong in (flow, Flow, Flow()):
        with pytest.raises(DefinitionError, match=r"step: a workflow is no step; start it with client\.start"):
            step(wrong)
    with pytest.raises(DefinitionError, match="step: a step needs a function, not a value of type int"):
        step(name="five")(5)
