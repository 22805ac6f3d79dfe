"""A worker in a process of its own, for tests that kill it: ``killing_app.py DATABASE LEDGER``."""

import asyncio
import os
import sqlite3
import sys
import time
from pathlib import Path

from belay_core import Context, Worker, current_step, open_stores, step, workflow

LEDGER = sys.argv[2] if len(sys.argv) > 2 else ""


def effect() -> None:
    """The step's effect, as a receiver that belay knows nothing of keeps it."""
    current = current_step()
    with sqlite3.connect(LEDGER, timeout=10) as connection:
        connection.execute("INSERT INTO effects VALUES (?, ?)", (current.run_id, current.name))


@step(idempotent=True)
def prepare() -> None:
    effect()
    time.sleep(0.02)


@step
def pay(number: int) -> int:
    effect()
    time.sleep(0.02)
    return number


@workflow("paying")
async def paying(ctx: Context, number: int) -> int:
    for _ in range(12):
        await ctx.step(prepare)
    return await ctx.step(pay, number)


@step(idempotent=True)
async def hang() -> None:
    await asyncio.Event().wait()


@workflow("hanging")
async def hanging(ctx: Context) -> None:
    await ctx.step(hang)


async def main(url: str) -> None:
    async with open_stores(url) as stores:
        worker = Worker(stores, [paying, hanging], concurrency=8)
        await worker.run(Path(LEDGER).with_name(f"{os.getpid()}.ready").touch)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
