# pyright: reportMissingImports=false
"""LangGraph's saver for PostgreSQL alone: the two writes a step of a graph makes, without the graph's own work."""

import asyncio
import time
from itertools import count

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from tests.bench.peers.workload import RESULT, Tally, asked, closed_loop, reported

tally = Tally()


async def flow(saver: AsyncPostgresSaver, thread: str, steps: int) -> None:
    """A thread of so many supersteps, each with one task that writes one channel."""
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    for number in range(steps):
        began = time.perf_counter()
        versions = {"out": f"{number + 1:032}.0"}
        checkpoint = empty_checkpoint() | {"channel_values": {"out": RESULT}, "channel_versions": versions}
        metadata = {"source": "loop", "step": number, "parents": {}}
        config = await saver.aput(config, checkpoint, metadata, versions)
        await saver.aput_writes(config, [("out", RESULT)], f"task-{number}")
        tally.step(began)


async def main() -> None:
    given = asked()
    threads = count()
    async with AsyncPostgresSaver.from_conn_string(given.url) as saver:
        await saver.setup()
        reported(await closed_loop(given, tally, lambda: flow(saver, f"thread-{next(threads)}", given.steps)))


if __name__ == "__main__":
    asyncio.run(main())
