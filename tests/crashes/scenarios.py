"""The seven workflows that are killed at every boundary, and what the world does while they run."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from belay_core import Approved, Client, Context, current_step, step, workflow
from belay_core.stores import Stores
from belay_core.workflows.definition import Definition
from belay_testing.crashes.effect_log import EffectLog
from belay_testing.crashes.forked_process import die
from belay_testing.faults import Fault, FaultStores, FaultyStore, error_after

BACKOFF = timedelta(milliseconds=1)


class World:
    """What the steps reach: set before a process is forked, or by the process itself."""

    ledger: EffectLog
    folder: Path
    client: Client


@step(idempotent=True)
async def look(number: int) -> int:
    World.ledger.note()
    return number


@step
async def pay(number: int) -> int:
    World.ledger.note()
    return number


@step(idempotent=True)
def count(number: int) -> int:
    World.ledger.note()
    return number


@step(retries=2, backoff=BACKOFF)
async def flaky(number: int) -> int:
    World.ledger.note()
    if current_step().attempt < 3:
        raise OSError("down")
    return number


@step(idempotent=True)
async def fall(number: int) -> int:
    """The process dies in here, the first time a run comes by."""
    World.ledger.note()
    mark = World.folder / f"{current_step().run_id}.fallen"
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return number
    die()
    return number


@step(idempotent=True)
async def decide_it() -> str:
    """Somebody approves while this run is in hand."""
    World.ledger.note()
    run_id = current_step().run_id
    for _ in range(2_000):
        found = await World.client.approvals(run_id)
        if found:
            await World.client.decide(found[0], "approved", by="boss")
            return "decided"
        if any(
            each.state != "waiting" for each in (await World.client.history(run_id)).attempts if each.step == "boss"
        ):
            return "decided"
        await asyncio.sleep(0.002)
    raise AssertionError("the gate was never asked")


@workflow("steps")
async def steps(ctx: Context) -> list[int]:
    one = await ctx.step(look, 1)
    two = await ctx.step(pay, one + 1)
    return [one, two, await ctx.step(count, two + 1), await ctx.step(pay, 4)]


@workflow("gate")
async def gate(ctx: Context) -> int:
    await ctx.step(look, 1)
    answer = await ctx.gate("boss", subject=3)
    assert isinstance(answer, Approved)
    return await ctx.step(pay, answer.subject)


@workflow("retry")
async def retry(ctx: Context) -> list[int]:
    return [await ctx.step(flaky, 1), await ctx.step(look, 2)]


@workflow("takeover")
async def takeover(ctx: Context) -> list[int]:
    return [await ctx.step(pay, 1), await ctx.step(look, 2), await ctx.step(fall, 3), await ctx.step(pay, 4)]


async def both(ctx: Context, number: int) -> int:
    return await ctx.step(look, number) + await ctx.step(pay, number)


@workflow("parallel")
async def parallel(ctx: Context) -> list[int]:
    pairs = await ctx.map(both, range(3), limit=2)
    one, rest = await ctx.gather(lambda c: c.step(look, 1), lambda c: c.map(look, [5, 6]))
    return [*pairs, one, *rest]


@workflow("deciding")
async def deciding(ctx: Context) -> int:
    asked = asyncio.create_task(ctx.gate("boss", subject=3))
    await ctx.branch("side").step(decide_it)
    answer = await asked
    assert isinstance(answer, Approved)
    return await ctx.step(pay, answer.subject)


@workflow("lost")
async def lost(ctx: Context) -> int:
    await ctx.step(look, 1)
    await ctx.step(pay, 2)
    answer = await ctx.gate("boss", subject=3)
    assert isinstance(answer, Approved)
    return await ctx.step(pay, answer.subject)


def losing_replies(stores: Stores) -> Stores:
    """The stores, where the first reply to each owned write is lost: it is executed, sent again, and found done."""
    given = 0

    async def every_other(store: FaultyStore, method: str) -> None:
        nonlocal given
        given += 1
        if given % 2:
            await error_after().strike(store, method)

    fault = Fault("every other reply is lost", before=False, strike=every_other)
    owned = {"record", "ask", "park", "settle"}
    return FaultStores(stores, of=owned, at=1, times=10_000, fault=fault).stores


@dataclass(frozen=True)
class Scenario:
    """A workflow, what it gives in the end, and what is done to it beside the kill that is enumerated."""

    flow: Definition[Any, Any]
    result: Any
    over: Callable[[Stores], Stores] = lambda stores: stores
    killed_before: bool = False
    """Whether another process has died on the run before."""
    recorded: frozenset[str] = frozenset()
    """Steps that the process which died before had recorded."""

    @property
    def name(self) -> str:
        return self.flow.name


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(steps, [1, 2, 3, 4]),
        Scenario(gate, 3),
        Scenario(retry, [1, 2]),
        Scenario(takeover, [1, 2, 3, 4], killed_before=True, recorded=frozenset({"pay#1", "look#1"})),
        Scenario(parallel, [0, 2, 4, 1, 5, 6]),
        Scenario(deciding, 3),
        Scenario(lost, 3, over=losing_replies),
    )
}
REPEATABLE = {"look", "count", "fall", "decide_it"}
"""The steps that are declared idempotent."""
