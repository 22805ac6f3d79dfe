"""A random load: steps that become due at random moments, at a given rate, whether or not the ones before are done.

``python -m tests.bench.load --url URL --rates 500 2000`` prints one line of JSON. A step's time counts from the moment
it is due, so what has to queue is counted as slow. The first rate that is not carried is the last one tried.
"""

import argparse
import asyncio
import random
import sys
import threading
import time
from typing import Any

from belay_core import Client, Context, Worker, workflow
from tests.bench.metering import Meter, ms, opened, percentile, printed, us_each
from tests.bench.work import PAYLOAD, SEEN, kept, once

_RUNS = 200
"""Runs side by side that take the steps that are due, one at a time each."""
_CARRIED = 0.95
"""The part of the offered steps that has to be done in the time."""


class Due:
    """The steps that are due, and what became of them."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[float | None] = asyncio.Queue()
        self.seconds: list[float] = []
        """Of each step that was done, from the moment it was due."""

    def offer(self, rate: float, lasting: float, loop: asyncio.AbstractEventLoop) -> int:
        """Make steps due at this rate for so many seconds, from a thread; how many."""
        jitter = random.Random(11)  # noqa: S311
        due = time.perf_counter()
        until, offered = due + lasting, 0
        while (due := due + jitter.expovariate(rate)) < until:
            if (ahead := due - time.perf_counter()) > 0:
                time.sleep(ahead)
            loop.call_soon_threadsafe(self.queue.put_nowait, due)
            offered += 1
        return offered


class _Now:
    due = Due()
    step = kept


@workflow("bench-load")
async def taking(ctx: Context, number: int) -> int:
    """Does steps as they become due, until told that there will be none."""
    done = 0
    while (due := await _Now.due.queue.get()) is not None:
        await ctx.step(_Now.step, done)
        _Now.due.seconds.append(time.perf_counter() - due)
        done += 1
    return done


async def offered(client: Client, rate: float, given: argparse.Namespace) -> dict[str, Any]:
    """The figures of one rate."""
    _Now.due = Due()
    runs = [await client.start(taking, number) for number in range(_RUNS)]
    await _loaded(min(rate, 500), 0.3)  # every run has been taken and has done something
    _Now.due.seconds.clear()
    meter = Meter(given.postmaster)
    number = await _loaded(rate, given.seconds)
    meter.end()
    done = list(_Now.due.seconds)
    while not _Now.due.queue.empty():
        _Now.due.queue.get_nowait()
    for _ in runs:
        _Now.due.queue.put_nowait(None)
    for run in runs:
        await run.result()
    return {
        "offered_per_s": rate,
        "carried_per_s": round(len(done) / meter.wall, 1),
        "carried": len(done) >= _CARRIED * number,
        "step_p50_ms": ms(percentile(done, 0.5)),
        "step_p99_ms": ms(percentile(done, 0.99)),
        "client_us_per_step": us_each(meter.client, len(done)),
        "server_us_per_step": us_each(meter.server, len(done)),
    }


async def _loaded(rate: float, lasting: float) -> int:
    """Offer steps from a thread, whose sleep is finer than the loop's; how many there were."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[int] = loop.create_future()
    due = _Now.due

    def offer() -> None:
        number = due.offer(rate, lasting, loop)
        loop.call_soon_threadsafe(over.set_result, number)

    thread = threading.Thread(target=offer)
    thread.start()
    number = await over
    thread.join()
    return number


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The figures of each rate, up to the first that is not carried."""
    SEEN.give(PAYLOAD)
    _Now.step = once if given.non_idempotent else kept
    rates: dict[str, dict[str, Any]] = {}
    async with opened(given.url) as stores, Worker(stores, [taking], concurrency=_RUNS) as worker:
        for rate in given.rates:
            rates[str(rate)] = await offered(worker.client, rate, given)
            if not rates[str(rate)]["carried"]:
                break
    carried = [rate for rate in given.rates if rates.get(str(rate), {}).get("carried")]
    return {"rates": rates, "most_carried": max(carried, default=0)}


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__)
    parser.add_argument("--url", required=True, help="as open_stores takes it; a database without a schema gets one")
    parser.add_argument("--rates", type=int, nargs="+", default=[500, 1000, 2000, 5000, 10_000], help="steps a second")
    parser.add_argument("--seconds", type=float, default=1.5, help="for which each is offered")
    parser.add_argument("--non-idempotent", action="store_true", help="steps that commit twice")
    parser.add_argument("--postmaster", type=int, metavar="PID", help="the server whose processor time is counted too")
    printed(asyncio.run(measured(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
