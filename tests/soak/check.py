"""Lets belay run for minutes while everything round it breaks, and has a judge of its own say what came of it.

``make soak MINUTES=30`` runs it on a SQLite file, on PostgreSQL, and on PostgreSQL through pgbouncer, side by side.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from belay_core.records.commands import RunHistory
from belay_drivers.postgres import migrate_postgres
from belay_drivers.sqlite import migrate_sqlite
from belay_testing.postgres_server import PostgresServer
from tests.faults.wire import CUTS, WireProxy
from tests.soak.judge import Verdict
from tests.soak.lane import Lane
from tests.soak.proxy import Relay
from tests.variants.pooler import MISSING, pooler

LANES = ("sqlite", "postgres", "pooled")
RESTART_EVERY = (20.0, 40.0)
"""Seconds between two restarts of the server, each an immediate one."""
STALLED = (0.5, 8.0)


async def soaked(names: list[str], seconds: float, folder: Path, rate: float, seed: int) -> dict[str, float]:
    """The figures of a soak on these databases; says what it finds."""
    rng = random.Random(seed)  # noqa: S311  (the same faults for the same seed)
    async with AsyncExitStack() as stack:
        lanes = []
        server = stack.enter_context(PostgresServer(durable=True)) if set(names) - {"sqlite"} else None
        if "sqlite" in names:
            lanes.append(await _sqlite(folder, rate, seed))
        if "postgres" in names and server is not None:
            lanes.append(await _postgres(stack, server, folder, rate, seed + 1))
        if "pooled" in names and server is not None:
            lanes.append(await _pooled(stack, server, folder, rate, seed + 2))
        restarting = None if server is None else asyncio.create_task(_restarts(server, rng, seconds))
        judged = await asyncio.gather(*(lane.soaked(seconds) for lane in lanes))
        restarts = 0 if restarting is None else await restarting
        figures: dict[str, float] = {"restarts": restarts}
        for lane, (verdict, histories) in zip(lanes, judged, strict=True):
            figures |= _report(lane, verdict, histories)
    return figures


async def _sqlite(folder: Path, rate: float, seed: int) -> Lane:
    url = f"sqlite:///{folder / 'soak.db'}"
    await migrate_sqlite(url)
    return Lane("sqlite", folder / "sqlite", url, url, rate, seed)


async def _postgres(stack: AsyncExitStack, server: PostgresServer, folder: Path, rate: float, seed: int) -> Lane:
    url = server.create_database("soak_direct")
    await migrate_postgres(url)
    proxy, rng = WireProxy(url), random.Random(seed)  # noqa: S311  (the same faults for the same seed)
    lane = Lane("postgres", folder / "postgres", url, await stack.enter_async_context(proxy.running()), rate, seed)

    async def cut() -> None:
        proxy.arm(rng.choice(CUTS))

    lane.add("cut_reply", cut)
    return lane


async def _pooled(stack: AsyncExitStack, server: PostgresServer, folder: Path, rate: float, seed: int) -> Lane:
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if program is None:
        raise RuntimeError(MISSING)
    url = server.create_database("soak_pooled")
    await migrate_postgres(url)
    address = stack.enter_context(pooler(program, url))
    relay, rng = Relay(int(address.rpartition(":")[2])), random.Random(seed)  # noqa: S311  (as above)
    port = await stack.enter_async_context(relay.running())
    parts = urlsplit(url)
    workers_url = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?pooler=transaction"
    lane = Lane("pooled", folder / "pooled", url, workers_url, rate, seed)

    async def cut() -> None:
        relay.cut()

    async def stall() -> None:
        await relay.stall(rng.uniform(*STALLED))

    lane.add("cut", cut)
    lane.add("stall", stall)
    return lane


async def _restarts(server: PostgresServer, rng: random.Random, seconds: float) -> int:
    """Kill the server and start it again, until the time is over; how often."""
    ends, count = time.monotonic() + seconds, 0
    while (pause := rng.uniform(*RESTART_EVERY)) < ends - time.monotonic():
        await asyncio.sleep(pause)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)
        count += 1
    return count


def _report(lane: Lane, verdict: Verdict, histories: Mapping[str, RunHistory]) -> dict[str, float]:
    wrong: dict[str, list[str]] = {
        **verdict.faults,
        "late_exits": lane.late_exits,
        "other_reviews": lane.operator.other_reviews,
    }
    resumed = sum(1 for each in histories.values() if each.run.epoch > 1)
    figures: dict[str, float] = {
        "runs": len(lane.operator.started),
        "resumed": resumed,
        "reviews": len(lane.operator.resolved),
        **{f"fault_{name}": count for name, count in sorted(lane.faults.items())},
        **{kind: len(found) for kind, found in wrong.items()},
    }
    bad = sum(len(found) for found in wrong.values())
    sys.stdout.write(f"{'BROKEN' if bad else 'holds':7} {lane.name}\n")
    for name, value in figures.items():
        sys.stdout.write(f"        {value:>7}  {name.replace('_', ' ')}\n")
    for kind, found in wrong.items():
        for each in found[:10]:
            sys.stdout.write(f"                 {kind}: {each}\n")
    met = ", ".join(f"{name} {count}" for name, count in Counter(lane.complaints).most_common())
    sys.stdout.write(f"                 errors that people met, and tried again: {met or 'none'}\n")
    return {f"{lane.name}_{name}": value for name, value in figures.items()} | {f"{lane.name}_bad": bad}


def main(arguments: list[str] | None = None) -> int:
    """Soak, print what was found, and say whether all is as it should be."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--minutes", type=float, default=2.0, help="for how long there are faults")
    parser.add_argument("--rate", type=float, default=2.0, help="runs started a second, on each database")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--only", choices=LANES, action="append", help="only this database; may be repeated")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep ledgers, logs and databases there")
    given = parser.parse_args(arguments)
    if given.json:
        # A soak that breaks off must not leave the figures of an earlier one.
        given.json.unlink(missing_ok=True)
    with TemporaryDirectory() as folder:
        home = given.keep or Path(folder)
        home.mkdir(exist_ok=True)
        began = time.monotonic()
        figures = asyncio.run(soaked(given.only or list(LANES), given.minutes * 60, home, given.rate, given.seed))
    figures["seconds"] = round(time.monotonic() - began, 1)
    sys.stdout.write(json.dumps(figures) + "\n")
    if given.json:
        given.json.write_text(json.dumps(figures) + "\n")
    return int(any(value for name, value in figures.items() if name.endswith("_bad")))


if __name__ == "__main__":
    sys.exit(main())
