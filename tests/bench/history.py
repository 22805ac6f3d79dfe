"""Runs with a short and a long history: what reading it back costs, and what one more step costs.

``python -m tests.bench.history --url URL --lengths 10 10000`` prints one line of JSON. The history of each run is
written before a worker takes it, and replayed by its body. Then all take a step in turn, so that short and long are
compared in the same second.
"""

import argparse
import asyncio
import json
import sys
import time
from typing import Any

from belay_core import Client, Context, Stores, Worker, workflow
from belay_core.ownership.identity import this_process
from belay_core.records import commands
from belay_core.records.workflow_run import RunWait
from tests.bench.metering import ms, opened, percentile, printed
from tests.bench.work import PAYLOAD, SEEN, done, kept, once

_STEPS = {"idempotent": kept, "non_idempotent": once}
_TOGETHER = 500
"""Attempts written in one go."""


class Turn:
    """One run's part in the steps that are taken in turn."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.done = asyncio.Event()
        self.over = False
        self.seconds: list[float] = []
        self.replayed = 0.0
        """Seconds from the body's first line to its last step with a record."""

    async def take(self) -> None:
        """Let the run take its step, and come back when it has."""
        self.done.clear()
        self.may.set()
        await self.done.wait()


TURNS: dict[int, Turn] = {}


@workflow("bench-history")
async def long_run(ctx: Context, given: tuple[str, int]) -> int:
    """Replays a history of this length, and then takes steps when it is its turn."""
    kind, length = given
    began = time.perf_counter()
    for each in range(length):
        await ctx.step(kept, each)
    turn = TURNS[length]
    turn.replayed = time.perf_counter() - began
    turn.done.set()
    while True:
        await turn.may.wait()
        turn.may.clear()
        if turn.over:
            return length
        began = time.perf_counter()
        await ctx.step(_STEPS[kind], length)
        turn.seconds.append(time.perf_counter() - began)
        turn.done.set()


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The figures of each length."""
    SEEN.give(PAYLOAD)
    kind = "non_idempotent" if given.non_idempotent else "idempotent"
    async with opened(given.url) as stores:
        client = Client(stores)
        # The longest first: a run that waits for the others must not be parked meanwhile.
        lengths = sorted(given.lengths, reverse=True)
        runs = [await client.start(long_run, (kind, length)) for length in lengths]
        TURNS.update({length: Turn() for length in lengths})
        released = await _written(stores, lengths)
        async with Worker(stores, [long_run]):
            for length in lengths:
                await stores.runs.park(released[length])
                stores.notifier.notify(released[length].lease.run_id, ready=True)
                await TURNS[length].done.wait()
            await _take_turns(given.seconds)
            for run in runs:
                await run.result()
    return {
        "lengths": {
            str(length): {
                "step_p50_ms": ms(percentile(TURNS[length].seconds, 0.5)),
                "replay_ms": ms(TURNS[length].replayed),
            }
            for length in given.lengths
        }
    }


async def _written(stores: Stores, lengths: list[int]) -> dict[int, commands.Park]:
    """Own the runs and write their histories; by length, the command that lets a run go."""
    owner = this_process(stores.ids).owner(stores.ids)
    released: dict[int, commands.Park] = {}
    for each in await stores.runs.acquire(commands.Acquire(owner, (long_run.name,), len(lengths))):
        length = json.loads(each.run.input or "")[1]
        for first in range(1, length + 1, _TOGETHER):
            numbers = range(first, min(first + _TOGETHER, length + 1))
            await stores.attempts.record(done(each, numbers, SEEN.text))
        released[length] = commands.Park(each.lease, RunWait("released", None), ready_at_ms=each.run.created_at_ms)
    return released


async def _take_turns(lasting: float) -> None:
    """Have all runs take steps in turn."""
    until = time.perf_counter() + lasting
    while time.perf_counter() < until:
        for turn in TURNS.values():
            await turn.take()
    for turn in TURNS.values():
        turn.over = True
        turn.may.set()


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.history", description=__doc__)
    parser.add_argument("--url", required=True, help="as open_stores takes it; a database without a schema gets one")
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 100, 1000, 10_000], help="attempts")
    parser.add_argument("--seconds", type=float, default=1.5, help="for which steps are taken in turn")
    parser.add_argument("--non-idempotent", action="store_true", help="steps that commit twice")
    printed(asyncio.run(measured(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
