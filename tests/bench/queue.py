"""A queue, end to end: runs started by fifty coroutines, taken, executed and ended by one worker of this process.

``python -m tests.bench.queue --url URL --runs 1000 --steps 1`` prints one line of JSON. Nobody waits for a single run.
"""

import argparse
import asyncio
import sys
import time
from typing import Any

from belay_core import Client, Worker
from tests.bench.metering import Meter, ms, opened, percentile, printed, rss_mib, us_each
from tests.bench.work import PAYLOAD, SEEN, kept_steps, once_steps

_STARTERS = 50
_LOOK = 0.002
"""Seconds between two looks whether all have ended."""


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The figures of one queue, after a short one has warmed it up."""
    SEEN.give(given.payload)
    flow = once_steps if given.non_idempotent else kept_steps
    async with opened(given.url) as stores, Worker(stores, [kept_steps, once_steps]) as worker:
        await _execute_until(worker.client, flow, min(100, given.runs), given.steps)
        SEEN.clear()
        meter = Meter(given.postmaster)
        starts, starting = await _execute_until(worker.client, flow, given.runs, given.steps)
        meter.end()
        completed = await _completed(worker.client, flow.name, given.runs)
    if completed < given.runs:
        raise SystemExit(f"only {completed} of {given.runs} runs have completed")
    return {
        "runs_per_s": round(given.runs / meter.wall, 1),
        "starts_per_s": round(given.runs / starting, 1),
        "start_p50_ms": ms(percentile(starts, 0.5)),
        "start_p99_ms": ms(percentile(starts, 0.99)),
        "client_us_per_run": us_each(meter.client, given.runs),
        "server_us_per_run": us_each(meter.server, given.runs),
        "seconds": round(meter.wall, 3),
        "rss_mib": round(rss_mib(), 1),
    }


async def _execute_until(client: Client, flow: Any, runs: int, steps: int) -> tuple[list[float], float]:
    """Start so many runs and come back when none is left; seconds of each start, and until the last one."""
    before = len(SEEN.ended)
    starts: list[float] = []
    numbers = iter(range(runs))
    began = time.perf_counter()

    async def start() -> None:
        for _ in numbers:
            at = time.perf_counter()
            await client.start(flow, steps)
            starts.append(time.perf_counter() - at)

    async with asyncio.TaskGroup() as group:
        for _ in range(_STARTERS):
            group.create_task(start())
    starting = time.perf_counter() - began
    while len(SEEN.ended) - before < runs:
        await asyncio.sleep(_LOOK)
    # Every body has come to its end: what is left is to be written.
    while await client.list(workflow=flow.name, status="running", limit=1):
        await asyncio.sleep(_LOOK)
    return starts, starting


async def _completed(client: Client, workflow: str, most: int) -> int:
    """How many runs have completed, of at least so many the newest."""
    found, before = 0, None
    while found < most:
        page = await client.list(workflow=workflow, status="completed", limit=1000, before=before)
        if not page:
            break
        found, before = found + len(page), page[-1].run_id
    return min(found, most)


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.queue", description=__doc__)
    parser.add_argument("--url", required=True, help="as open_stores takes it; a database without a schema gets one")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1, help="of each run")
    parser.add_argument("--non-idempotent", action="store_true", help="steps that commit twice")
    parser.add_argument("--payload", type=int, default=PAYLOAD, metavar="BYTES", help="of each result, as JSON")
    parser.add_argument("--postmaster", type=int, metavar="PID", help="the server whose processor time is counted too")
    printed(asyncio.run(measured(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
