"""What a step does to what it is given is seen by nobody else: fresh and resumed are one."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from belay_core import Context, StepContext, Workflow, step, workflow
from belay_testing.drive import run_ready


@dataclass
class Order:
    items: list[str]
    notes: dict[str, str] = field(default_factory=dict)


@step(idempotent=True)
async def spoil(order: Order) -> int:
    order.items.append("spoiled")
    order.notes["by"] = "the step"
    return len(order.items)


async def replayed(bench, flow, *given):
    run = await bench.client.start(flow, *given)
    await bench.execute_due(flow)
    for approval in await bench.client.approvals(run):
        await bench.client.decide(approval, "approved")
    await bench.execute_due(flow)
    return await run.result()


@pytest.mark.parametrize("how", ["step", "map", "keyword"])
async def test_the_body_keeps_what_it_gave_to_a_step(bench, how):
    seen = []

    @workflow("giving")
    async def giving(ctx: Context, order: Order) -> Order:
        if how == "step":
            await ctx.step(spoil, order)
        elif how == "keyword":
            await ctx.step(spoil, order=order)
        else:
            await ctx.map(spoil, [order, order])
        seen.append((list(order.items), dict(order.notes)))
        await ctx.gate("go", subject=1)
        return order

    assert await replayed(bench, giving, Order(["a"])) == Order(["a"])
    assert seen == [(["a"], {})] * 2


async def test_a_step_is_given_what_was_there_when_it_was_called(bench):
    @step(idempotent=True)
    async def count(items: list[str]) -> int:
        return len(items)

    @workflow("changing")
    async def changing(ctx: Context) -> int:
        items = ["a"]
        call = ctx.step(count, items)
        items.append("b")
        return await call

    run = await bench.client.start(changing)
    await bench.execute_due(changing)
    assert await run.result() == 1


async def test_a_further_attempt_is_given_what_the_first_one_was(bench):
    taxed = []

    @step(idempotent=True, retries=2)
    async def tax(order: dict[str, int]) -> int:
        order["price"] *= 2
        taxed.append(order["price"])
        if len(taxed) < 3:
            raise ConnectionError
        return order["price"]

    @workflow("taxing")
    async def taxing(ctx: Context) -> int:
        return await ctx.step(tax, {"price": 100})

    run = await bench.client.start(taxing)
    async with bench.worker(taxing) as worker:
        for _ in range(3):
            await run_ready(worker)
            bench.clock.advance(timedelta(seconds=10))
    assert await run.result() == 200
    assert taxed == [200, 200, 200]


class Declared(Workflow[Order, int]):
    workflow_name = "declared-order"

    @step(idempotent=True)
    async def first(self, ctx: StepContext[Order]) -> list[str]:
        ctx.input.items.append("spoiled")
        return ["out"]

    @step(idempotent=True)
    async def second(self, ctx: StepContext[Order]) -> int:
        ctx.out(Declared.first).append("spoiled")
        return len(ctx.input.items) + len(ctx.out(Declared.first))


async def test_steps_of_the_class_form_see_the_input_and_earlier_outputs_as_they_were(bench):
    run = await bench.client.start(Declared, Order(["a"]))
    async with bench.worker(Declared()) as worker:
        await run_ready(worker)
    assert await run.result() == 2
