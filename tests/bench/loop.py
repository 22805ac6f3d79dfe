"""A closed loop: a number of runs at a time, each started, executed in this process, awaited, and followed by the next.

``python -m tests.bench.loop --url URL --concurrency 50 --steps 10 --seconds 1.5`` prints one line of JSON.
"""

import argparse
import asyncio
import sys
import time
from typing import Any

from belay_core import Client, Worker
from tests.bench.metering import Meter, ms, opened, percentile, printed, rss_mib, us_each
from tests.bench.work import PAYLOAD, SEEN, kept_steps, once_steps


class Loop:
    """The runs of one closed loop."""

    def __init__(self, client: Client, given: argparse.Namespace) -> None:
        self._client, self._steps = client, given.steps
        self._flow = once_steps if given.non_idempotent else kept_steps
        self._going = True
        self.workflows: list[float] = []
        """Seconds of each run, from before its start to its result."""
        self.runs_in_all = 0
        self._some = given.concurrency > 0
        self._ended = asyncio.Event()

    async def go_on(self) -> None:
        """One run after the other until ``stop``."""
        while self._going:
            began = time.perf_counter()
            run = await self._client.start(self._flow, self._steps)
            await run.result()
            self.workflows.append(time.perf_counter() - began)
            self.runs_in_all += 1
            self._ended.set()

    async def until_one_ends(self) -> None:
        """Come back when the next run has its result.

        Runs that share their commits end together. What is counted from one such moment to another holds whole runs.
        """
        self._ended.clear()
        if self._some:
            await self._ended.wait()

    def clear(self) -> None:
        """Forget what was counted."""
        self.workflows.clear()

    def stop(self) -> None:
        """Let the runs in hand be the last."""
        self._going = False


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The figures of one closed loop, counted after it has warmed up."""
    SEEN.give(given.payload)
    began = time.perf_counter()
    async with (
        opened(given.url) as stores,
        Worker(stores, [kept_steps, once_steps], concurrency=_room(given)) as worker,
    ):
        loop = Loop(worker.client, given)
        async with asyncio.TaskGroup() as group:
            for _ in range(given.concurrency):
                group.create_task(loop.go_on())
            await asyncio.sleep(given.warm_up)
            await loop.until_one_ends()
            warming = len(SEEN.steps)
            SEEN.clear()
            loop.clear()
            meter = Meter(given.postmaster)
            await asyncio.sleep(given.seconds)
            await loop.until_one_ends()
            meter.end()
            figures = _figures(loop, meter)
            loop.stop()
        return figures | {
            "rss_mib": round(rss_mib(), 1),
            "steps_in_all": warming + len(SEEN.steps),
            "runs_in_all": loop.runs_in_all,
            "lifetime_s": round(time.perf_counter() - began, 3),
        }


def _figures(loop: Loop, meter: Meter) -> dict[str, Any]:
    steps, runs = len(SEEN.steps), len(loop.workflows)
    return {
        "workflows_per_s": round(runs / meter.wall, 1),
        "steps_per_s": round(steps / meter.wall, 1),
        "step_p50_ms": ms(percentile(SEEN.steps, 0.5)),
        "step_p99_ms": ms(percentile(SEEN.steps, 0.99)),
        "workflow_p50_ms": ms(percentile(loop.workflows, 0.5)),
        "workflow_p99_ms": ms(percentile(loop.workflows, 0.99)),
        "client_us_per_step": us_each(meter.client, steps),
        "server_us_per_step": us_each(meter.server, steps),
        "client_us_per_workflow": us_each(meter.client, runs),
        "steps": steps,
    }


def _room(given: argparse.Namespace) -> int:
    return max(100, int(given.concurrency))


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.loop", description=__doc__)
    parser.add_argument("--url", required=True, help="as open_stores takes it; a database without a schema gets one")
    parser.add_argument(
        "--concurrency", type=int, default=50, help="runs at a time; with 0 the worker only looks for some"
    )
    parser.add_argument("--steps", type=int, default=10, help="of each run")
    parser.add_argument("--seconds", type=float, default=1.5, help="for which is counted, at least")
    parser.add_argument("--warm-up", type=float, default=0.5, metavar="SECONDS", help="before that")
    parser.add_argument("--non-idempotent", action="store_true", help="steps that commit twice")
    parser.add_argument("--payload", type=int, default=PAYLOAD, metavar="BYTES", help="of each result, as JSON")
    parser.add_argument("--postmaster", type=int, metavar="PID", help="the server whose processor time is counted too")
    printed(asyncio.run(measured(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
