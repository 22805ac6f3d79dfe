"""The floor: what the database's own driver takes for one durable, fenced write, a commit each.

``python -m tests.bench.floor --url URL --connections 1 --seconds 1`` writes through asyncpg, by a prepared statement;
``--sqlite FILE`` through the sqlite3 of the standard library. Either prints one line of JSON.
"""

import argparse
import asyncio
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.bench.metering import Meter, ms, percentile, printed, us_each

_ROWS = 100
"""Rows a connection writes to in turn."""
_TABLE = """CREATE TABLE IF NOT EXISTS bench_floor
  (id TEXT PRIMARY KEY, owner TEXT NOT NULL, epoch BIGINT NOT NULL, written BIGINT NOT NULL DEFAULT 0, body TEXT)"""
_WRITE = "UPDATE bench_floor SET written = written + 1, body = {2} WHERE id = {0} AND owner = {1} RETURNING written"
_BODY = '{"of":"' + "x" * 90 + '"}'
_OWNER = "the owner of these rows"


async def over_asyncpg(given: argparse.Namespace) -> dict[str, Any]:
    """Every connection writes to rows of its own, one write at a time."""
    import asyncpg

    connections = [await asyncpg.connect(given.url) for _ in range(given.connections)]
    first = connections[0]
    await first.execute(f"{_TABLE} WITH (fillfactor = 70)")
    rows = [(f"{number:08}", _OWNER, 1) for number in range(_ROWS * given.connections)]
    await first.executemany(
        "INSERT INTO bench_floor (id, owner, epoch) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", rows
    )
    seconds: list[float] = []

    async def write(number: int, until: float) -> None:
        statement = await connections[number].prepare(_WRITE.format("$1", "$2", "$3"))
        own = [rows[number * _ROWS + each][0] for each in range(_ROWS)]
        turn = 0
        while (began := time.perf_counter()) < until:
            if await statement.fetchval(own[turn % _ROWS], _OWNER, _BODY) is None:
                raise SystemExit("the fence held a write back that it should let pass")
            seconds.append(time.perf_counter() - began)
            turn += 1

    async def together(lasting: float) -> None:
        until = time.perf_counter() + lasting
        await asyncio.gather(*(write(number, until) for number in range(given.connections)))

    await together(given.warm_up)
    seconds.clear()
    meter = Meter(given.postmaster)
    await together(given.seconds)
    meter.end()
    for each in connections:
        await each.close()
    return _figures(seconds, meter)


def over_sqlite3(given: argparse.Namespace) -> dict[str, Any]:
    """One connection, a write-ahead log, and a commit that waits for the disk."""
    with closing(sqlite3.connect(given.sqlite, isolation_level=None)) as connection:
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute(_TABLE)
        rows = [(f"{number:08}", _OWNER, 1) for number in range(_ROWS)]
        connection.executemany("INSERT OR IGNORE INTO bench_floor (id, owner, epoch) VALUES (?, ?, ?)", rows)
        statement = _WRITE.format("?2", "?3", "?1")

        def written(lasting: float) -> list[float]:
            seconds: list[float] = []
            until, turn = time.perf_counter() + lasting, 0
            while (began := time.perf_counter()) < until:
                connection.execute(statement, (_BODY, rows[turn % _ROWS][0], _OWNER)).fetchall()
                seconds.append(time.perf_counter() - began)
                turn += 1
            return seconds

        written(given.warm_up)
        meter = Meter()
        seconds = written(given.seconds)
        meter.end()
    return _figures(seconds, meter)


def _figures(seconds: list[float], meter: Meter) -> dict[str, Any]:
    return {
        "commits_per_s": round(len(seconds) / meter.wall, 1),
        "p50_ms": ms(percentile(seconds, 0.5)),
        "p99_ms": ms(percentile(seconds, 0.99)),
        "client_us": us_each(meter.client, len(seconds)),
        "server_us": us_each(meter.server, len(seconds)),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.floor", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="of a PostgreSQL database; a table of its own is made there")
    where.add_argument("--sqlite", type=Path, metavar="FILE")
    parser.add_argument("--connections", type=int, default=1, help="of asyncpg, each with one write at a time")
    parser.add_argument("--seconds", type=float, default=1.0, help="for which is counted")
    parser.add_argument("--warm-up", type=float, default=0.3, metavar="SECONDS", help="before that")
    parser.add_argument("--postmaster", type=int, metavar="PID", help="the server whose processor time is counted too")
    given = parser.parse_args(arguments)
    printed(over_sqlite3(given) if given.sqlite else asyncio.run(over_asyncpg(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
