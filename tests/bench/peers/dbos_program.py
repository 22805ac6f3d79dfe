# pyright: reportMissingImports=false
"""DBOS by its asynchronous interface, with its defaults; ``--url`` is a database of PostgreSQL or SQLite."""

import asyncio
import time
from typing import Any

from dbos import DBOS

from tests.bench.peers.workload import RESULT, Tally, asked, closed_loop, queue_figures, reported

QUEUE = "bench"
POLL = 0.05
"""Seconds between two looks into the queue: a second is DBOS's default, and would be part of what is measured."""

tally = Tally()


@DBOS.step()
async def answer(number: int) -> str:
    return RESULT


@DBOS.workflow()
async def flow(steps: int) -> int:
    for number in range(steps):
        began = time.perf_counter()
        await answer(number)
        tally.step(began)
    return steps


async def main() -> None:
    given = asked()
    DBOS(
        config={
            "name": "bench",
            "system_database_url": given.url,
            "application_version": "1",
            "executor_id": "bench",
            "log_level": "ERROR",
            "enable_otlp": False,
        }
    )
    DBOS.launch()
    if not given.queued:
        return reported(await closed_loop(given, tally, lambda: flow(given.steps)))
    await DBOS.register_queue_async(QUEUE, polling_interval_sec=POLL)

    async def start(turn: int) -> object:
        return await DBOS.enqueue_workflow_async(QUEUE, flow, given.steps)

    async def ended(handles: list[Any]) -> None:
        await asyncio.gather(*(handle.get_result() for handle in handles))

    return reported(await queue_figures(given, start, ended))


if __name__ == "__main__":
    asyncio.run(main())
