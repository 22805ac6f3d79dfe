"""What the processes do: one works until it is killed, the next brings the run to an end and tells of it."""

import asyncio
import json
import os
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from belay_core import Client, Worker
from belay_core.errors import InvalidTransitionError, StoreError
from belay_core.stores import Stores
from belay_drivers.postgres import open_postgres
from belay_drivers.sql.connection.engine_lookup import engines_of
from belay_drivers.sqlite import open_sqlite
from belay_testing.crashes.boundaries import Boundaries
from belay_testing.crashes.forked_process import die
from belay_testing.drive import run_ready
from belay_testing.jitter import FixedJitter
from tests.crashes.planted import PLANTED
from tests.crashes.scenarios import Scenario, World

OVER = {"completed", "failed", "cancelled", "needs_review"}
DEADLINE = 20.0


def opened(url: str) -> AbstractAsyncContextManager[Stores]:
    """The stores behind a URL, without the search for drivers, which would take each process its time."""
    return open_sqlite(url) if url.startswith("sqlite") else open_postgres(url)


async def worked(scenario: Scenario, stores: Stores, run_id: str) -> str:
    """Work on the run, and answer its gates, until it is over; how it stands then."""
    client = World.client
    loop = asyncio.get_running_loop()
    until = loop.time() + DEADLINE
    rng, faulty = FixedJitter(0.0), scenario.over(stores)
    async with Worker(faulty, [scenario.flow], telemetry=False, background=False, jitter=rng) as worker:
        while True:
            try:
                await run_ready(worker)
            except StoreError as error:
                if error.code != "persistence_failed":
                    raise
            state = (await client.explain(run_id)).state
            if state in OVER or loop.time() > until:
                return state
            for approval in await client.approvals(run_id):
                try:
                    await client.decide(approval, "approved", by="boss")
                except InvalidTransitionError:
                    break
            await asyncio.sleep(0.001)


async def victim(url: str, scenario: Scenario, run_id: str, at: int, planted: str | None = None) -> list[str]:
    """Start the run and work on it, until this process is killed at the boundary; the boundaries it met."""
    async with opened(url) as stores:
        if planted is not None:
            scenario = replace(scenario, over=PLANTED[planted])
        World.client = Client(stores, telemetry=False)
        boundaries = Boundaries(at=at, strike=die)
        with boundaries.observing(engines_of(stores)):
            await World.client.start(scenario.flow, run_id=run_id)
            await worked(scenario, stores, run_id)
    return boundaries.names


async def survivor(url: str, scenario: Scenario, run_id: str) -> dict[str, Any]:
    """Ask for the run again, as its caller would who heard nothing, and bring it to an end."""
    async with opened(url) as stores:
        World.client = client = Client(stores, telemetry=False)
        run = await client.start(scenario.flow, run_id=run_id)
        before = await client.history(run)
        state = await worked(scenario, stores, run_id)
        after = await client.history(run)
        decisions = [each.decision for each in after.approvals]
    return {
        "pid": os.getpid(),
        "state": state,
        "result": json.loads(after.run.result or "null"),
        "done": [[each.step_key, each.attempt] for each in before.attempts if each.state == "succeeded"],
        "attempts": [[each.step_key, each.attempt, str(each.state), each.idempotent] for each in after.attempts],
        "decisions": decisions,
    }
