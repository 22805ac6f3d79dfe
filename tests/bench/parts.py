"""What a step takes of the client's processor, part by part, as fifty runs side by side have it.

``python -m tests.bench.parts --engine`` has the engine execute runs over a store that answers at once: what is left is
its own. ``--url URL`` gives a store the records of such runs, with no engine. Either prints one line of JSON.
"""

import argparse
import asyncio
import sys
from dataclasses import replace
from typing import Any

from belay_core import Client, Worker
from belay_core.ownership.identity import this_process
from belay_core.records import commands
from belay_core.stores import RunStore, Stores
from belay_core.stores.attempts import Recorded, RecordOutcome
from belay_core.stores.runs import Acquired, Settled, SettleOutcome
from tests.bench.metering import Meter, opened, printed, us_each
from tests.bench.work import PAYLOAD, SEEN, done, kept_steps, once_steps

_SIDE_BY_SIDE = 50
_AT_ONCE = 1_000
"""Runs taken in one go."""


class AtOnce:
    """A store whose runs are taken already, and that answers what their owner writes in the next turn of the loop."""

    def __init__(self, runs: RunStore, taken: list[Acquired]) -> None:
        self._runs = runs
        self._taken = taken
        self._left = len(taken)
        self.ended = asyncio.Event()
        """Set when all runs have ended."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)

    async def acquire(self, command: commands.Acquire) -> tuple[Acquired, ...]:
        """As many as are wanted."""
        given, self._taken = self._taken[: command.limit], self._taken[command.limit :]
        return tuple(given)

    async def record(self, _command: commands.Record) -> RecordOutcome:
        """It is as good as stored."""
        await asyncio.sleep(0)
        return Recorded(None, None)

    async def settle(self, _command: commands.Settle) -> SettleOutcome:
        """So is the end."""
        await asyncio.sleep(0)
        self._left -= 1
        if not self._left:
            self.ended.set()
        return Settled(0)


async def engine_alone(given: argparse.Namespace) -> dict[str, Any]:
    """What the engine takes for a step, a run's part of it included."""
    flow = once_steps if given.non_idempotent else kept_steps
    async with opened("sqlite://") as stores:
        await _worked(stores, flow, _SIDE_BY_SIDE, given.steps)
        meter = await _worked(stores, flow, given.runs, given.steps)
    return {"client_us_per_step": us_each(meter.client, given.runs * given.steps)}


async def _worked(stores: Stores, flow: Any, runs: int, steps: int) -> Meter:
    client = Client(stores)
    await asyncio.gather(*(client.start(flow, steps) for _ in range(runs)))
    at_once = AtOnce(stores.runs, await _taken(stores, flow.name, runs))
    meter = Meter()
    instead: Any = at_once
    async with Worker(
        replace(stores, runs=instead, attempts=instead), [flow], concurrency=_SIDE_BY_SIDE, telemetry=False
    ):
        await at_once.ended.wait()
        meter.end()
    return meter


async def _taken(stores: Stores, workflow: str, runs: int) -> list[Acquired]:
    owner, taken = this_process(stores.ids).owner(stores.ids), list[Acquired]()
    while len(taken) < runs:
        taken += await stores.runs.acquire(commands.Acquire(owner, (workflow,), _AT_ONCE))
    return taken


async def store_alone(given: argparse.Namespace) -> dict[str, Any]:
    """What a store takes for a record: its way into a flush and back, the driver, the socket and the loop."""
    async with opened(given.url) as stores:
        client = Client(stores)
        await asyncio.gather(*(client.start(kept_steps, given.steps) for _ in range(_SIDE_BY_SIDE)))
        taken = await _taken(stores, kept_steps.name, _SIDE_BY_SIDE)

        async def recorded(run: Acquired, first: int, last: int) -> None:
            for number in range(first, last):
                await stores.attempts.record(done(run, range(number, number + 1), SEEN.text))

        number = given.runs * given.steps // _SIDE_BY_SIDE
        await asyncio.gather(*(recorded(each, 1, 1 + given.steps) for each in taken))
        meter = Meter()
        await asyncio.gather(*(recorded(each, 1 + given.steps, 1 + given.steps + number) for each in taken))
        meter.end()
    records = number * _SIDE_BY_SIDE
    return {"records_per_s": round(records / meter.wall, 1), "client_us_per_record": us_each(meter.client, records)}


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.parts", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--engine", action="store_true", help="over a store that answers at once")
    what.add_argument("--url", help="of a database, as open_stores takes it; one without a schema gets one")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=10, help="of each run")
    parser.add_argument("--non-idempotent", action="store_true", help="steps that are recorded twice")
    given = parser.parse_args(arguments)
    SEEN.give(PAYLOAD)
    printed(asyncio.run(engine_alone(given) if given.engine else store_alone(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
