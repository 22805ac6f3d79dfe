"""Many steps of one run side by side: from when the first is called until the last one has its result.

``python -m tests.bench.fan --url URL --parallel 10 1000`` prints one line of JSON.
"""

import argparse
import asyncio
import sys
import time
from typing import Any

from belay_core import Context, Worker, workflow
from tests.bench.metering import Meter, ms, opened, percentile, printed, us_each
from tests.bench.work import PAYLOAD, SEEN, kept, once

_STEPS = {"idempotent": kept, "non_idempotent": once}


@workflow("bench-fan")
async def fanning(ctx: Context, given: tuple[str, int, int]) -> list[float]:
    """So often, so many steps side by side; seconds of each time."""
    kind, parallel, times = given
    seconds: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await asyncio.gather(*(ctx.step(_STEPS[kind], number) for number in range(parallel)))
        seconds.append(time.perf_counter() - began)
    return seconds


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The figures of each width."""
    SEEN.give(PAYLOAD)
    kind = "non_idempotent" if given.non_idempotent else "idempotent"
    widths: dict[str, dict[str, Any]] = {}
    async with opened(given.url) as stores, Worker(stores, [fanning]) as worker:
        for parallel in given.parallel:
            times = max(1, min(50, given.steps // parallel))
            await (await worker.client.start(fanning, (kind, parallel, 1))).result()
            meter = Meter(given.postmaster)
            seconds = await (await worker.client.start(fanning, (kind, parallel, times))).result()
            meter.end()
            widths[str(parallel)] = {
                "p50_ms": ms(percentile(seconds, 0.5)),
                "steps_per_s": round(parallel * times / sum(seconds), 1),
                "client_us_per_step": us_each(meter.client, parallel * times),
            }
    return {"widths": widths}


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fan", description=__doc__)
    parser.add_argument("--url", required=True, help="as open_stores takes it; a database without a schema gets one")
    parser.add_argument("--parallel", type=int, nargs="+", default=[10, 1000], help="steps side by side")
    parser.add_argument("--steps", type=int, default=3000, help="of each width, in all")
    parser.add_argument("--non-idempotent", action="store_true", help="steps that commit twice")
    parser.add_argument("--postmaster", type=int, metavar="PID", help="the server whose processor time is counted too")
    printed(asyncio.run(measured(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
