"""Workflows of every shape, killed anywhere: a replay gives the author the results of the first execution, in order.

Each seed makes one workflow of nested maps, gathers, task groups, races, calls awaited late, sleeps and gates. It is
run, its worker is killed one to three times at random calls of the store, and what every play heard is compared: one
must be the beginning of the other.
"""

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from belay_core import Context, StepFailed, Worker, step, workflow
from belay_core.engine.settings import Settings
from belay_core.errors import StoreError
from belay_testing.drive import run_ready, vanish
from belay_testing.faults import FaultStores, kill_after, kill_before

STALE = 30_001
SEEDS = {"memory": range(16), "file": range(16, 20), "postgres": range(20, 28)}
KINDS = ["step"] * 5 + ["map", "gather", "group", "race", "stream", "late", "sleep", "gate"]


@step(idempotent=True)
async def look(name: str, turns: int, fails: bool) -> str:
    for _ in range(turns):
        await asyncio.sleep(0)
    if fails:
        raise ValueError(name)
    return name


@step
async def pay(name: str, turns: int, fails: bool) -> str:
    return await look.fn(name, turns, fails)


@step(idempotent=True)
def count(name: str, turns: int, fails: bool) -> str:
    if fails:
        raise ValueError(name)
    return name


@dataclass(frozen=True)
class Part:
    """A part of a story: what it is, the parts in it, and whether it has a peculiarity."""

    kind: str
    parts: "tuple[Part, ...]"
    odd: bool
    call: tuple[Any, ...]


def part(rng: random.Random, depth: int = 0) -> Part:
    kind = rng.choice(KINDS) if depth < 3 else "step"
    inner = depth + 1 if kind in {"map", "gather", "group"} else 3
    parts = tuple(part(rng, inner) for _ in range(rng.randint(0, 4))) if depth < 3 else ()
    name = f"s{rng.randrange(4)}"
    call = (rng.choice([look, look, pay, count]).named(name), name, rng.choice([0, 0, 1, 3, 10]), rng.random() < 0.1)
    return Part(kind, parts, rng.random() < 0.5, call)


async def reported(ctx: Context, one: Part, heard: list[Any]) -> None:
    """Play one part, and note what is heard."""
    try:
        found = await getattr(Playing(ctx, heard), one.kind)(one)
    except StepFailed as failed:
        found = f"failed {failed.message}"
    heard.append((ctx._scope.path, one.kind, found))


class Playing:
    """How each kind of part is executed."""

    def __init__(self, ctx: Context, heard: list[Any]) -> None:
        self.ctx, self.heard = ctx, heard

    async def step(self, one: Part) -> Any:
        return await self.ctx.step(*one.call)

    async def sleep(self, one: Part) -> None:
        await self.ctx.sleep(timedelta(milliseconds=700))

    async def gate(self, one: Part) -> str:
        return type(await self.ctx.gate("ask", subject=1)).__name__

    async def map(self, one: Part) -> None:
        async def item(ctx: Context, each: Part) -> None:
            await reported(ctx, each, self.heard)

        await self.ctx.map(item, one.parts, limit=2 if one.odd else None)

    async def gather(self, one: Part) -> None:
        await self.ctx.gather(*(lambda ctx, each=each: reported(ctx, each, self.heard) for each in one.parts))

    async def group(self, one: Part) -> None:
        async with asyncio.TaskGroup() as group:
            for each in one.parts:
                group.create_task(reported(self.ctx.branch("side"), each, self.heard))

    async def race(self, one: Part) -> Any:
        tasks = [asyncio.create_task(self.ctx.step(*each.call)) for each in (one, *one.parts)]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.heard.append((self.ctx._scope.path, "first", [tasks.index(task) for task in done]))
        for task in rest if one.odd else ():
            task.cancel()
        return await asyncio.gather(*(ended(task) for task in tasks))

    async def stream(self, one: Part) -> None:
        tasks = [asyncio.create_task(self.ctx.step(*each.call)) for each in (one, *one.parts)]
        for task in asyncio.as_completed(tasks):
            self.heard.append((self.ctx._scope.path, "next", await ended(task)))

    async def late(self, one: Part) -> Any:
        calls = [self.ctx.step(*each.call) for each in (one, *one.parts)]
        await self.ctx.sleep(timedelta(milliseconds=1))
        return [await ended(call) for call in reversed(calls)]


async def ended(call: Any) -> str:
    try:
        return await call
    except asyncio.CancelledError:
        return "cancelled"
    except StepFailed as failed:
        return f"failed {failed.message}"


class Telling:
    """One run of a story, and the results that each execution of it got."""

    def __init__(self, bench, parts, rng, patience):
        self.bench, self.rng, self.patience = bench, rng, patience
        self.executions: list[list[Any]] = []

        @workflow("story")
        async def story(ctx: Context) -> int:
            heard: list[Any] = []
            if ctx.run_id == self.run.run_id:  # a run that an earlier telling left ready is executed here too
                self.executions.append(heard)
            for each in parts:
                await reported(ctx, each, heard)
            return len(heard)

        self.story = story

    async def reported(self, kills):
        """Run it to its end, killing a worker at each of these calls; how many calls the first worker made."""
        self.run = await self.bench.client.start(self.story)
        calls = 0
        for kill in [*kills, None]:
            at, before = kill or (0, True)
            store = FaultStores(self.bench.stores, at=at, fault=kill_before() if before else kill_after())
            async with self.bench.worker_over(store, self.story) as worker:
                await self.worked(worker, store)
            calls = calls or len(store.calls)
            self.bench.clock.advance(STALE)
        return calls

    async def worked(self, worker: Worker, store: FaultStores):
        if self.patience:
            # As a worker in production: waiting runs stay in memory for a second, and get their signals there.
            object.__setattr__(worker.dispatcher._services, "settings", Settings())
        while not store.gone and not await self.is_over():
            executing = asyncio.create_task(run_ready(worker))
            while not executing.done():
                await asyncio.sleep(0.0005)
                if store.gone:
                    self.executions.append(
                        list(self.executions.pop()) if self.executions else []
                    )  # what is told now, nobody hears
                    await vanish(worker)
                due = self.bench.clock.next_due()
                self.bench.clock.advance(min(due or 0, self.rng.choice([1, 10, 40])))
                await self.perhaps_decided(0.05)
            if not isinstance(executing.exception(), StoreError | None):
                await executing
            run = await self.bench.client.get(self.run)
            if run.waiting is not None and run.waiting.wake_at_ms is not None and self.rng.random() < 0.5:
                self.bench.clock.advance(max(0, run.waiting.wake_at_ms - self.bench.clock.now()))
            await self.perhaps_decided(0.5)

    async def is_over(self):
        state = (await self.bench.client.explain(self.run)).state
        return state in {"completed", "failed", "needs_review"}

    async def perhaps_decided(self, jitter):
        if self.rng.random() < jitter:
            for approval in (await self.bench.client.approvals(self.run))[:1]:
                await self.bench.client.decide(approval, "approved")


@pytest.mark.parametrize("patience", [False, True], ids=["parked", "lingering"])
async def test_a_replay_tells_the_same_story(bench, patience, request):
    for seed in SEEDS[request.node.callspec.params["belay_each_store"]]:
        rng = random.Random(seed)  # noqa: S311  (the same story for the same seed)
        parts = [part(rng) for _ in range(rng.randint(1, 4))]
        calls = await Telling(bench, parts, rng, patience).reported([])
        for _ in range(3):
            kills = [(rng.randint(1, calls), rng.random() < 0.5) for _ in range(rng.randint(1, 3))]
            telling = Telling(bench, parts, rng, patience)
            await telling.reported(kills)
            state = (await bench.client.explain(telling.run)).state
            assert state in {"completed", "needs_review"}, (seed, kills)
            for one, next_one in zip(telling.executions, telling.executions[1:], strict=False):
                shorter = min(len(one), len(next_one))
                assert one[:shorter] == next_one[:shorter], (seed, kills)
