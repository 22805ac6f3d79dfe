# pyright: reportMissingImports=false
"""absurd by its asynchronous interface: one client that hands in, and one worker with its one connection."""

import asyncio
import time
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from tests.bench.peers.workload import RESULT, Tally, asked, by_starters, queue_figures, reported, standing_work

TASKS_PER_SECOND = 400
"""So many wait for each second of the loop: more than it can do."""

LOOK = 0.002
"""Seconds between two looks whether all have ended."""

tally = Tally()
leaving: list[str] = []
"""Tasks whose function has come to its end, in that order; their last commit follows."""


class Bench:
    """A client and a worker of one database."""

    def __init__(self, url: str) -> None:
        self.client, self.worker = AsyncAbsurd(url), AsyncAbsurd(url)
        for each in (self.client, self.worker):
            each.register_task(name="flow")(flow)

    async def start(self, steps: int) -> str:
        spawned = await self.client.spawn("flow", {"steps": steps})
        return str(spawned["task_id"])

    async def ended(self, tasks: list[str]) -> None:
        """All are completed. To ask for each until it is would take the server's time from the worker."""
        while len(leaving) < len(tasks):
            await asyncio.sleep(LOOK)
        while (await self.client.fetch_task_result(leaving[-1])).state != "completed":
            await asyncio.sleep(LOOK)
        leaving.clear()


async def flow(params: Any, ctx: Any) -> int:
    run = time.perf_counter()
    for number in range(params["steps"]):
        began = time.perf_counter()
        await ctx.step(f"step-{number}", answer)
        tally.step(began)
    tally.run(run)
    leaving.append(ctx.task_id)
    return int(params["steps"])


async def answer() -> str:
    return RESULT


async def main() -> None:
    given = asked()
    with psycopg.connect(given.url, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
    bench = Bench(given.url)
    await bench.client.create_queue()
    if not given.queued:
        waiting = int(TASKS_PER_SECOND * (given.seconds + given.warm_up))
        await by_starters(waiting, lambda turn: bench.start(given.steps))
        worker = bench.worker.start_worker(concurrency=given.concurrency)
        return reported(await standing_work(given, tally, worker))
    working = asyncio.ensure_future(bench.worker.start_worker(concurrency=given.concurrency))
    figures = await queue_figures(given, lambda turn: bench.start(given.steps), bench.ended)
    working.cancel()
    return reported(figures)


if __name__ == "__main__":
    asyncio.run(main())
