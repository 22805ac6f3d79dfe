"""Type-checked, never run: what the class form infers."""

from dataclasses import dataclass
from typing import assert_never, assert_type

from belay_core import Approved, Client, Lapsed, NotNeeded, Rejected, RunHandle, StepContext, Workflow, gate, step


@dataclass(frozen=True)
class Order:
    cents: int


class Refund(Workflow[int, str]):
    @step(idempotent=True, retries=2)
    async def order(self, ctx: StepContext[int]) -> Order:
        assert_type(ctx.input, int)
        return Order(ctx.input)

    @gate(when=lambda order: order.cents > 10_000)
    def manager(self, ctx: StepContext[int]) -> Order:
        assert_type(ctx.out(Refund.order), Order)
        return ctx.out(Refund.order)

    @gate(on_reject="continue")
    def auditor(self, ctx: StepContext[int]) -> str:
        return "look"

    @step
    async def payment(self, ctx: StepContext[int]) -> str:
        answer = ctx.out(Refund.manager)
        match answer:
            case Approved(subject=order) | NotNeeded(subject=order):
                assert_type(order, Order)
            case _:
                assert_never(answer)
        other = ctx.out(Refund.auditor)
        match other:
            case Approved() | NotNeeded() | Rejected() | Lapsed():
                return "paid"
            case _:
                assert_never(other)


async def client(client: Client) -> None:
    assert_type(await client.start(Refund, 17), RunHandle[str])
    assert_type(await client.start(Refund(), 17), RunHandle[str])
    await client.start(Refund, "x")  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue]
