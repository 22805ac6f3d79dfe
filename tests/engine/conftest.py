"""A bench for engine tests: one database, workers that come and go, and a ledger of effects."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from belay_core import Client, Worker
from belay_core.records.step_record import StepRecord
from belay_core.stores import Stores
from belay_testing.clock import ManualClock
from belay_testing.drive import run_ready, vanish
from belay_testing.faults import FaultStores
from belay_testing.handles import StoresHandle
from belay_testing.jitter import FixedJitter

STALE = 30_001


class Bench:
    """What the tests of the engine have in hand."""

    def __init__(self, stores: Stores, clock: ManualClock) -> None:
        self.stores = stores
        self.clock = clock
        self.client = Client(stores, approver="tester")
        self.effects: list[Any] = []

    def worker(self, *definitions: Any) -> Worker:
        return Worker(self.stores, definitions, background=False, jitter=FixedJitter(1.0))

    def worker_over(self, faulty: FaultStores, *definitions: Any) -> Worker:
        """A worker that reaches the database through these stores."""
        stores = faulty.stores
        return Worker(stores, definitions, telemetry=False, background=False)

    async def until_dead(self, *definitions: Any, at: asyncio.Event) -> None:
        """A worker executes runs until ``at`` is set, and is then gone; its leases are stale afterwards."""
        async with self.worker(*definitions) as worker:
            executing = asyncio.create_task(run_ready(worker))
            await at.wait()
            await vanish(worker)
            await executing
        self.clock.advance(STALE)

    async def execute_due(self, *definitions: Any) -> None:
        async with self.worker(*definitions) as worker:
            await run_ready(worker)

    async def attempts(self, run: Any) -> list[StepRecord]:
        return list((await self.client.history(run)).attempts)

    async def states(self, run: Any) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for attempt in await self.attempts(run):
            found.setdefault(attempt.step_key, []).append(attempt.state.value)
        return found

    def counted(self) -> Counter[Any]:
        return Counter(self.effects)


@pytest.fixture
async def bench(belay_each_store: StoresHandle, belay_clock: ManualClock) -> AsyncGenerator[Bench]:
    async with belay_each_store as stores:
        yield Bench(stores, belay_clock)
