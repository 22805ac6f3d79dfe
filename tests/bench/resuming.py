"""A worker that is killed, and another one on the same machine that goes on with its runs.

``python -m tests.bench.resuming --url URL --kills 3 --runs 20`` prints one line of JSON; with ``--frozen`` the worker
is stopped instead, so that only the lapse of its leases lets another one take its runs. ``--takeover 1000`` times how
long so many runs take to change hands once it is allowed, their history read. ``--claims`` times how fast pending runs
are taken.
"""

import argparse
import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from belay_core import Client, Context, Stores, Worker, step, workflow
from belay_core.ids import Uuid7Ids
from belay_core.ownership.identity import this_process
from belay_core.records import commands
from tests.bench.apart import Apart, end_with_starter
from tests.bench.metering import ms, opened, percentile, printed
from tests.bench.work import PAYLOAD, SEEN, done

_AT_ONCE = 100
"""Runs a worker takes at once."""
_STEPS = 3
"""Attempts of each run that changes hands."""


@step(idempotent=True)
async def endless(run_id: str) -> None:
    """Say that it has begun, and when; it ends with its process."""
    sys.stdout.write(f"began {run_id} {time.monotonic()}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().create_future()


@workflow("bench-endless")
async def unending(ctx: Context, number: int) -> int:
    """Hangs in a step."""
    await ctx.step(endless, ctx.run_id)
    return number


async def working(given: argparse.Namespace) -> None:
    """Work on the runs others start, until this process or the one that started it is ended."""
    end_with_starter()
    async with opened(given.url) as stores:
        await Worker(stores, [unending]).run(lambda: printed({"ready": True}))


async def killing(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds from the end of a worker to the step's beginning again elsewhere, over all runs and kills."""
    seconds: list[float] = []
    async with opened(given.url) as stores, AsyncExitStack() as stack:
        client = Client(stores)
        owner = await stack.enter_async_context(_worker(given.url))
        for number in range(given.runs):
            await client.start(unending, number)
        for _ in range(given.runs):
            await owner.line("began")
        for _ in range(given.kills):
            heir = await stack.enter_async_context(_worker(given.url))
            ended = time.monotonic()
            if given.frozen:
                owner.freeze()
            else:
                owner.kill()
            seconds += [float((await heir.line("began")).split()[2]) - ended for _ in range(given.runs)]
            owner.kill()
            owner = heir
        # The last one would wait for its steps to end.
        owner.kill()
    return {"resumed_p50_ms": ms(percentile(seconds, 0.5)), "resumed_p99_ms": ms(percentile(seconds, 0.99))}


def _worker(url: str) -> Apart:
    return Apart("tests.bench.resuming", "--url", url, "--work")


async def changing_hands(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds until all runs of a worker that is known to be gone are another one's, their history read."""
    SEEN.give(PAYLOAD)
    ids = Uuid7Ids()
    async with opened(given.url) as stores:
        client, identity = Client(stores), this_process(ids)
        await asyncio.gather(*(client.start(unending, number) for number in range(given.takeover)))
        first = identity.owner(ids)
        command = commands.Acquire(first, (unending.name,), given.takeover)
        owned = await stores.runs.acquire(command)
        await asyncio.gather(*(stores.attempts.record(done(each, range(1, _STEPS + 1), SEEN.text)) for each in owned))
        began = time.perf_counter()
        taken = read = 0
        while taken < given.takeover:
            command = commands.Acquire(identity.owner(ids), (unending.name,), _AT_ONCE, (first,))
            acquired = await stores.runs.acquire(command)
            if not acquired:
                raise SystemExit(f"only {taken} of {given.takeover} runs could be taken")
            histories = await stores.attempts.history(commands.History(tuple(each.run.run_id for each in acquired)))
            taken, read = taken + len(acquired), read + sum(len(each.attempts) for each in histories)
        seconds = time.perf_counter() - began
    if read != _STEPS * given.takeover:
        raise SystemExit(f"read {read} attempts instead of {_STEPS * given.takeover}")
    return {"takeover_ms": ms(seconds), "runs": taken}


async def claiming(given: argparse.Namespace) -> dict[str, Any]:
    """How many of the pending runs there are can be taken in a second, so many in one go."""
    async with opened(given.url) as stores:
        return await _claimed(stores, given)


async def _claimed(stores: Stores, given: argparse.Namespace) -> dict[str, Any]:
    ids = Uuid7Ids()
    identity = this_process(ids)
    taken, calls = 0, []
    began = time.perf_counter()
    while (at := time.perf_counter()) < began + given.seconds:
        command = commands.Acquire(identity.owner(ids), (unending.name,), given.batch)
        acquired = await stores.runs.acquire(command)
        taken += len(acquired)
        calls.append(time.perf_counter() - at)
        if len(acquired) < given.batch:
            break
    return {"claims_per_s": round(taken / (time.perf_counter() - began), 1), "claim_p50_ms": ms(percentile(calls, 0.5))}


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.resuming", description=__doc__)
    parser.add_argument("--url", required=True, help="as open_stores takes it; a database without a schema gets one")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--kills", type=int, metavar="NUMBER", help="workers that end one after another")
    what.add_argument("--takeover", type=int, metavar="NUMBER", help="runs that change hands")
    what.add_argument("--claims", action="store_true", help="take pending runs, which are there already")
    what.add_argument("--work", action="store_true", help="be a worker")
    parser.add_argument("--runs", type=int, default=20, help="the killed worker has in hand")
    parser.add_argument("--frozen", action="store_true", help="stop the worker instead of killing it")
    parser.add_argument("--batch", type=int, default=50, help="runs claimed in one go")
    parser.add_argument("--seconds", type=float, default=1.0, help="for which is claimed")
    given = parser.parse_args(arguments)
    if given.work:
        asyncio.run(working(given))
        return 0
    doing = killing if given.kills else changing_hands if given.takeover else claiming
    printed(asyncio.run(doing(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
