"""Cancels every operation of every store at every await, once, twice and three times, on both databases.

``make cancels`` runs it. It fails where it is not known what became of a call, or something is left behind.
"""

import argparse
import asyncio
import json
import logging
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.stores import Stores
from belay_drivers.postgres import open_postgres
from belay_drivers.sqlite import open_sqlite
from belay_testing.cancels.awaits import cancel_at
from belay_testing.cancels.helper import Cancels
from belay_testing.clock import ManualClock
from belay_testing.crashes.effect_log import EffectLog
from belay_testing.handles import StoresHandle
from tests.cancels.operations import OPERATIONS, Desk, Prepare
from tests.cancels.probing import Probe, checked_out, probing, snapshot
from tests.crashes import scenarios
from tests.crashes.enumerate import DRIVERS, databases, say
from tests.crashes.shares import Share, add_share, share_of

STRIKES = (1, 2, 3)
MOST = 500
MOST_OF_A_RUN = 40
"""Awaits of a worker's run that are struck, for each number of cancellations."""
NEXT = 5.0
"""Seconds within which the next write has to be done."""


class Cancelling:
    """The points of one driver."""

    def __init__(self, stores: Stores, clock: ManualClock, probe: Probe, share: Share) -> None:
        self.stores, self.clock, self.probe, self.share = stores, clock, probe, share
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []
        self._labels = (f"run{number:07}" for number in count())

    async def operation(self, name: str, prepare: Prepare) -> None:
        """Every await of an operation."""
        known, awaits = await self._undisturbed(prepare)
        self.counts["operations"] += 1
        for times in STRIKES:
            for at in range(1, MOST):
                if at > awaits + 1:
                    break
                if self.share.has():
                    await self._point(f"{name}, cancelled {times} times from await {at} on", prepare, known, at, times)

    async def _undisturbed(self, prepare: Prepare) -> tuple[set[str], int]:
        """How the rows of a run stand before the call and after it, and how often the call waits."""
        desk, base = self._desk()
        call = await prepare(desk)
        before = await snapshot(self.probe, desk.label, base)
        ended = await cancel_at(call())
        if ended.error is not None:
            raise ended.error
        return {before, await snapshot(self.probe, desk.label, base)}, ended.awaits

    def _desk(self) -> tuple[Desk, int]:
        return Desk(self.stores, self.clock, next(self._labels)), int(self.clock.now())

    async def _point(self, where: str, prepare: Prepare, known: set[str], at: int, times: int) -> None:
        desk, base = self._desk()
        call = await prepare(desk)
        around = asyncio.all_tasks()
        ended = await cancel_at(call(), at, times)
        if not ended.was_struck:
            return
        self.counts["awaits"] += 1
        self.counts["answered"] += not ended.was_cancelled
        if ended.error is not None:
            self._hold(where, "unknown", f"it raised {type(ended.error).__name__}")
        left = [*checked_out(self.stores), *await self.probe.left_open()]
        tasks = len(asyncio.all_tasks() - around)
        left += [f"{tasks} tasks are left"] if tasks else []
        left_so = await snapshot(self.probe, desk.label, base)
        if left_so not in known:
            self._hold(where, "unknown", "its run stands neither as before it nor as after it")
        for each in [*left, *await self._next_write()]:
            self._hold(where, "leaked", each)
        if await snapshot(self.probe, desk.label, base) != left_so:
            self._hold(where, "unknown", "it was done after its caller had gone on")

    async def _next_write(self) -> list[str]:
        label = next(self._labels)
        with suppress(TimeoutError):
            async with asyncio.timeout(NEXT):
                await self.stores.runs.start(commands.Start(RunId(label), f"flow-{label}", "1", "null"))
                return []
        return ["the next write hangs"]

    def _hold(self, where: str, kind: str, what: str) -> None:
        self.counts[kind] += 1
        self.broken.append(f"{where}: {what}")


async def cancelled(driver: str, url: str, given: argparse.Namespace) -> Cancelling:
    """All points of a driver."""
    clock = ManualClock()
    opening = open_sqlite(url, clock=clock) if driver == "sqlite" else open_postgres(url, clock=clock)
    async with opening as stores, probing(url) as probe:
        cancelling = Cancelling(stores, clock, probe, given.share)
        for name in given.operations:
            await cancelling.operation(name, OPERATIONS[name])
    return cancelling


async def worked(driver: str, url: str, given: argparse.Namespace, figures: Counter[str]) -> None:
    """Cancel workers while they run workflows, at awaits that are evenly spread (``--every``: at all of them)."""
    clock = ManualClock()
    open_ = open_sqlite if driver == "sqlite" else open_postgres
    cancels = Cancels(StoresHandle(url, partial(open_, url, clock=clock)), clock)
    share = given.share
    most = None if given.every else max(1, MOST_OF_A_RUN * share.taken // share.parts)
    for flow in (scenarios.steps, scenarios.gate, scenarios.parallel):
        try:
            report = await cancels(flow, most=most)
        except AssertionError as error:
            figures["unknown"] += 1
            say(f"BROKEN {driver} {flow.name}: {error}")
            continue
        figures["awaits"] += report.points
        figures["worker_awaits"] += report.points
        say(f"{driver:9}{flow.name:10}{report.points:6} cancelled{report.needs_review:5} to review")


def main(arguments: list[str] | None = None) -> int:
    """Enumerate, print a table, and say whether all is as it should be."""
    given = _parsed(arguments)
    if given.json:
        # A run that breaks off must not leave the figures of an earlier one.
        given.json.unlink(missing_ok=True)
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    figures: Counter[str] = Counter({"awaits": 0, "unknown": 0, "leaked": 0})
    with TemporaryDirectory() as folder, databases(Path(folder), given.drivers) as urls:
        for driver, url in urls.items():
            found = asyncio.run(cancelled(driver, url, given))
            counts = found.counts
            say(
                f"{driver:9}{counts['operations']:4} operations{counts['awaits']:6} cancelled"
                f"{counts['answered']:6} answered all the same{counts['unknown']:4} unknown{counts['leaked']:4} leaked"
            )
            for line in found.broken[:20]:
                say(f"BROKEN {driver} {line}")
            figures += counts
            scenarios.World.ledger = EffectLog(Path(folder) / "ledger")
            if given.workers:
                asyncio.run(worked(driver, url, given, figures))
    return _reported({**dict.fromkeys(("awaits", "unknown", "leaked"), 0), **figures}, began, given.json)


def _reported(figures: dict[str, int], began: float, file: Path | None) -> int:
    text = json.dumps({**figures, "seconds": round(time.monotonic() - began, 1)})
    say(text)
    if file:
        file.write_text(text + "\n")
    return int(figures["unknown"] > 0 or figures["leaked"] > 0 or figures["awaits"] == 0)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make cancels", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--drivers", nargs="+", choices=DRIVERS, default=list(DRIVERS))
    parser.add_argument("--operations", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS), metavar="NAME")
    parser.add_argument("--every", action="store_true", help="cancel workers at every await")
    parser.add_argument("--no-workers", dest="workers", action="store_false", help="cancel no workers")
    add_share(parser)
    given = parser.parse_args(arguments)
    given.share = share_of(given)
    return given


if __name__ == "__main__":
    sys.exit(main())
