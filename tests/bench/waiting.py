"""Runs that wait: how soon a decision is acted upon, and what so many of them take of memory.

``python -m tests.bench.waiting --url URL --decisions 40`` decides for a worker of this process, with ``--elsewhere``
for one of another process; ``--parked 10000`` has so many runs wait. Either prints one line of JSON.
"""

import argparse
import asyncio
import sys
import time
from typing import Any

from belay_core import Client, Context, Worker, step, workflow
from tests.bench.apart import Apart, end_with_starter
from tests.bench.metering import Meter, ms, opened, percentile, printed, rss_mib, us_each

_SIDE_BY_SIDE = 2_000
"""Runs in hand at once while many are parked."""
_LOOK = 0.05
"""Seconds between two looks whether all are parked."""
ACTED: dict[str, float] = {}
"""When the step after a decision began, by run."""


class Working:
    """Whom this process works for."""

    for_others = False


@step(idempotent=True)
async def acted(run_id: str) -> None:
    """Note when it began; moments of this clock are the same in all processes of a machine."""
    ACTED[run_id] = time.monotonic()
    if Working.for_others:
        sys.stdout.write(f"acted {run_id} {ACTED[run_id]}\n")
        sys.stdout.flush()


@workflow("bench-waiting")
async def waiting(ctx: Context, number: int) -> int:
    """Asks, and acts on the answer."""
    await ctx.gate("decide", subject=number)
    await ctx.step(acted, ctx.run_id)
    return number


async def all_parked(client: Client, workflow: str, number: int) -> None:
    """Come back when so many runs of a workflow have been parked."""
    while True:
        found, before = 0, None
        while page := await client.list(workflow=workflow, status="suspended", limit=1000, before=before):
            found, before = found + len(page), page[-1].run_id
        if found >= number:
            return
        await asyncio.sleep(_LOOK)


async def decided(client: Client, number: int, apart: Apart | None) -> list[float]:
    """Seconds from each decision, made one after another, to the first step after it."""
    runs = [await client.start(waiting, each) for each in range(number)]
    await all_parked(client, waiting.name, number)
    seconds: list[float] = []
    for run in runs:
        began = time.monotonic()
        await client.approve(run, "decide", by="bench")
        if apart is not None:
            _, run_id, at = (await apart.line("acted")).split()
            ACTED[run_id] = float(at)
        await run.result()
        seconds.append(ACTED[run.run_id] - began)
    return seconds


async def deciding(given: argparse.Namespace) -> dict[str, Any]:
    """The figures of decisions."""
    async with opened(given.url) as stores:
        if given.elsewhere:
            async with Apart("tests.bench.waiting", "--url", given.url, "--work") as apart:
                seconds = await decided(Client(stores), given.decisions, apart)
        else:
            async with Worker(stores, [waiting]) as worker:
                seconds = await decided(worker.client, given.decisions, None)
    return {"next_step_p50_ms": ms(percentile(seconds, 0.5)), "next_step_p99_ms": ms(percentile(seconds, 0.99))}


async def working(given: argparse.Namespace) -> None:
    """Work on the runs others start, until this process or the one that started it is ended."""
    end_with_starter()
    Working.for_others = True
    async with opened(given.url) as stores:
        await Worker(stores, [waiting]).run(lambda: printed({"ready": True}))


async def parked(given: argparse.Namespace) -> dict[str, Any]:
    """The figures of many parked runs."""
    async with opened(given.url) as stores, Worker(stores, [waiting], concurrency=_SIDE_BY_SIDE) as worker:
        before = rss_mib()
        meter = Meter()
        numbers = iter(range(given.parked))

        async def start() -> None:
            for each in numbers:
                await worker.client.start(waiting, each)

        await asyncio.gather(*(start() for _ in range(50)))
        await all_parked(worker.client, waiting.name, given.parked)
        meter.end()
        after = rss_mib()
    return {
        "rss_mib": round(after, 1),
        "kib_per_parked_run": round((after - before) * 1024 / given.parked, 2),
        "parked_per_s": round(given.parked / meter.wall, 1),
        "client_us_per_parked_run": us_each(meter.client, given.parked),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.waiting", description=__doc__)
    parser.add_argument("--url", required=True, help="as open_stores takes it; a database without a schema gets one")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--decisions", type=int, metavar="NUMBER", help="runs that are decided one after another")
    what.add_argument("--parked", type=int, metavar="NUMBER", help="runs that wait at the same time")
    what.add_argument("--work", action="store_true", help="be the worker of another process")
    parser.add_argument("--elsewhere", action="store_true", help="have another process work on the runs")
    given = parser.parse_args(arguments)
    if given.work:
        asyncio.run(working(given))
    else:
        printed(asyncio.run(deciding(given) if given.decisions else parked(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
