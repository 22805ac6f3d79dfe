"""The class form: steps and gates in order, inherited, with a fingerprint, on the same engine."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass

import pytest

from belay_core import (
    Approved,
    Context,
    DefinitionError,
    NotNeeded,
    RunFailed,
    StepContext,
    Workflow,
    gate,
    step,
    workflow,
)
from belay_core.workflows.registry import as_definition, catalogue
from belay_testing.drive import decide, run_ready


@dataclass(frozen=True)
class Order:
    number: int
    cents: int


class Bank:
    def __init__(self):
        self.paid = []

    async def pay(self, order: Order, key: str) -> str:
        self.paid.append((order.cents, key))
        return f"paid {order.cents}"


class Refund(Workflow[int, str]):
    def __init__(self, bank: Bank):
        self.bank = bank

    @step(idempotent=True, retries=2)
    async def order(self, ctx: StepContext[int]) -> Order:
        return Order(ctx.input, ctx.input * 100)

    @gate(when=lambda order: order.cents > 10_000)
    def manager(self, ctx: StepContext[int]) -> Order:
        return ctx.out(Refund.order)

    @step
    async def payment(self, ctx: StepContext[int]) -> str:
        answer = ctx.out(Refund.manager)
        assert isinstance(answer, (Approved, NotNeeded))
        return await self.bank.pay(answer.subject, ctx.step_key)


async def test_below_the_limit_nobody_is_asked(bench):
    bank = Bank()
    run = await bench.client.start(Refund(bank), 7)
    await bench.execute_due(Refund(bank))
    assert await run.result() == "paid 700"
    assert bank.paid == [(700, f"{run.run_id}/payment#1")]
    assert (await bench.states(run))["manager#1"] == ["skipped"]


async def test_above_the_limit_the_approvers_subject_is_what_is_paid(bench):
    bank = Bank()
    refund = Refund(bank)
    run = await bench.client.start(refund, 500)
    async with bench.worker(refund) as worker:
        await run_ready(worker)
        assert bank.paid == []
        await decide(worker, run, "manager", edited=Order(500, 100))
    assert await run.result() == "paid 100"


async def test_a_rejection_fails_the_run_and_no_later_step_has_a_row(bench):
    refund = Refund(Bank())
    run = await bench.client.start(refund, 500)
    async with bench.worker(refund) as worker:
        await run_ready(worker)
        await decide(worker, run, "manager", "rejected")
    with pytest.raises(RunFailed, match="gate manager was rejected"):
        await run.result()
    assert sorted(await bench.states(run)) == ["manager#1", "order#1"]


async def test_on_reject_continue_hands_the_rejection_on(bench):
    class Lenient(Workflow[int, str]):
        @gate(on_reject="continue")
        def ask(self, ctx: StepContext[int]) -> int:
            return ctx.input

        @step
        async def tell(self, ctx: StepContext[int]) -> str:
            return type(ctx.out(Lenient.ask)).__name__

    run = await bench.client.start(Lenient, 1)
    async with bench.worker(Lenient) as worker:
        await run_ready(worker)
        await decide(worker, run, decision="rejected")
    assert await run.result() == "Rejected"


async def test_steps_are_inherited_and_one_declared_again_keeps_its_place(bench):
    class Base(Workflow[str, str]):
        @step
        async def first(self, ctx: StepContext[str]) -> str:
            return "base"

        @step
        async def last(self, ctx: StepContext[str]) -> str:
            return f"{ctx.out(Base.first)} {ctx.input}"

    class Derived(Base):
        @step
        async def first(self, ctx: StepContext[str]) -> str:
            return "derived"

    run = await bench.client.start(Derived, "x")
    await bench.execute_due(Derived)
    assert await run.result() == "derived x"


async def test_the_step_that_was_running_is_the_only_one_executed_again(bench):
    stuck = asyncio.Event()

    class Chain(Workflow[None, str]):
        @step(idempotent=True)
        async def one(self, ctx: StepContext[None]) -> str:
            bench.effects.append("one")
            return "1"

        @step(idempotent=True)
        async def two(self, ctx: StepContext[None]) -> str:
            bench.effects.append("two")
            if bench.counted()["two"] == 1:
                stuck.set()
                await asyncio.Event().wait()
            return ctx.out(Chain.one) + "2"

    run = await bench.client.start(Chain)
    await bench.until_dead(Chain, at=stuck)
    await bench.execute_due(Chain)
    assert await run.result() == "12"
    assert bench.counted() == {"one": 1, "two": 2}


def shaped(*, retries=0, idempotent=False, kind=None, limit=10, body="a", extra=False, given=Order):
    class Shaped(Workflow[given, str]):
        @step(retries=retries, idempotent=idempotent, kind=kind)
        async def one(self, ctx: StepContext[given]) -> str:
            return body

        @gate(when=lambda subject: subject > limit)
        def ask(self, ctx: StepContext[given]) -> int:
            return 1

        if extra:

            @step
            async def more(self, ctx: StepContext[given]) -> str:
                return body

        @step
        async def last(self, ctx: StepContext[given]) -> str:
            return body

    return as_definition(Shaped).version


@dataclass
class Other:
    number: int


def test_the_fingerprint_changes_with_the_shape_and_not_with_bodies_or_rules():
    version = shaped()
    assert len(version) == 64
    assert int(version, 16)
    assert {shaped(retries=3), shaped(idempotent=True), shaped(body="b"), shaped(limit=99)} == {version}
    others = {shaped(kind="tool_call"), shaped(extra=True), shaped(given=Other), shaped(given=int)}
    assert version not in others
    assert len(others) == 4


def test_the_fingerprint_is_the_same_in_every_process():
    program = (
        "from belay_core import *\nfrom belay_core.workflows.registry import as_definition\n"
        "class W(Workflow[int, str]):\n    @step\n    async def a(self, ctx: StepContext[int]) -> str: ...\n"
        "print(as_definition(W).version)"
    )
    seen = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(seen) == 1


def test_a_declaration_that_cannot_work_is_refused_when_it_is_registered():
    class Empty(Workflow[int, str]):
        pass

    class Twice(Workflow[int, str]):
        @step(name="x")
        async def one(self, ctx: StepContext[int]) -> str: ...

        @gate(name="x")
        def two(self, ctx: StepContext[int]) -> str: ...

        @step
        async def three(self, ctx: StepContext[int]) -> str: ...

    class WrongContext(Workflow[int, str]):
        @step
        async def one(self, ctx: StepContext[str]) -> str: ...

    class WrongResult(Workflow[int, str]):
        @step
        async def one(self, ctx: StepContext[int]) -> int: ...

    class GateLast(Workflow[int, str]):
        @gate
        def one(self, ctx: StepContext[int]) -> str: ...

    class Bare(Workflow):
        @step
        async def one(self, ctx: StepContext[int]) -> str: ...

    for kind, message in [
        (Empty, "declares no step"),
        (Twice, "declared twice"),
        (WrongContext, "must take StepContext of the input type"),
        (WrongResult, "does not give the result type"),
        (GateLast, "a gate cannot be its last step"),
        (Bare, "name its input and result"),
        (Refund, "register an instance"),
        ("no workflow", "definitions: str is no workflow; give what @workflow made"),
    ]:
        with pytest.raises(DefinitionError, match=message):
            catalogue([kind])


def test_gates_refuse_a_condition_that_cannot_be_called_and_a_kind():
    with pytest.raises(DefinitionError, match="when: must be something"):
        gate(when=5)(lambda self, ctx: 1)
    with pytest.raises(DefinitionError, match="kind: a gate's kind"):
        gate(kind="x")(lambda self, ctx: 1)


def test_a_workflow_registered_twice_is_refused():
    @workflow("same")
    async def one(ctx: Context) -> None: ...

    @workflow("same")
    async def two(ctx: Context) -> None: ...

    with pytest.raises(DefinitionError, match="registered twice"):
        catalogue([one, two])


def test_a_function_that_cannot_be_a_body_is_refused():
    with pytest.raises(DefinitionError, match="must be an async function"):
        workflow("sync")(lambda ctx: None)

    with pytest.raises(DefinitionError, match="at most one input"):

        @workflow("many")
        async def many(ctx: Context, one: int, two: int) -> None: ...
