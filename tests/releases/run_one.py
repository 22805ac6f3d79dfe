"""Runs a workflow to its end with the code of one release: ``run_one.py HOME URL``, HOME being where its code is."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import belay_core
import belay_drivers
from belay_core import Approved, Context, Worker, open_stores, step, workflow
from belay_testing import drive as driving

# The last release knows it under its earlier name.
drive: Any = driving
run_ready = getattr(drive, "run_ready", None) or drive.drain


@step(retries=2)
async def double(number: int) -> int:
    return number * 2


@workflow("upgraded")
async def upgraded(ctx: Context, number: int) -> int:
    doubled = await ctx.step(double, number)
    answer = await ctx.gate("checked", subject=doubled)
    return await ctx.step(double, answer.subject) if isinstance(answer, Approved) else 0


async def main(home: Path, url: str) -> None:
    for package in (belay_core, belay_drivers):
        assert Path(str(package.__file__)).is_relative_to(home), package.__file__
    async with open_stores(url) as stores, Worker(stores, [upgraded], background=False) as worker:
        run = await worker.client.start(upgraded, 3)
        await run_ready(worker)
        await drive.decide(worker, run, "checked", by="ada")
        assert await run.result() == 12
        history = [entry.kind for entry in await worker.client.journal(run)]
        assert history, "nothing was noted"
    sys.stdout.write("done\n")


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
