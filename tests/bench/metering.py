"""What every program here measures with: percentiles, processor time, memory, and one line of JSON at the end."""

import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from belay_core import Stores, open_stores
from belay_core.gc_tuning import tune_gc
from belay_core.stores.drivers import find_migrations

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Time and processor time from when it is made or begun anew, of this process and of a server's processes."""

    def __init__(self, postmaster: int | None = None) -> None:
        self._postmaster = postmaster
        self.begin()

    def begin(self) -> None:
        """Count from here on; the collector looks as seldom as in ``belay worker``."""
        tune_gc()
        self._server = server_seconds(self._postmaster)
        self._client = time.process_time()
        self._wall = time.perf_counter()

    def end(self) -> None:
        """Count no further."""
        self.wall = time.perf_counter() - self._wall
        """Seconds."""
        self.client = time.process_time() - self._client
        """Processor seconds of this process, all its threads."""
        ended = server_seconds(self._postmaster)
        self.server = None if ended is None or self._server is None else ended - self._server
        """Processor seconds of the server's processes; None where they cannot be seen."""


def server_seconds(postmaster: int | None) -> float | None:
    """Processor seconds of a PostgreSQL so far: the first process, those it has collected, and those that live."""
    if postmaster is None or not Path("/proc/self/stat").exists():
        return None
    fields = _fields(postmaster)
    if fields is None:
        return None
    iterations = sum(int(each) for each in fields[11:15])
    for child in children(postmaster):
        fields = _fields(child)
        iterations += sum(int(each) for each in fields[11:13]) if fields else 0
    return iterations / _TICKS


def children(pid: int) -> list[int]:
    """The processes a process has started, of those that live."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _fields(pid: int) -> list[str] | None:
    """What the system says of a process, from its state on: the name before may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def rss_mib() -> float:
    """Memory this process has in use now, in MiB; where that cannot be seen, the most it ever had."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * _PAGE / 2**20
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 2**10


def percentile(values: Sequence[float], part: float) -> float | None:
    """The value below which this part of the values lies; None of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None


def ms(seconds: float | None) -> float | None:
    """Seconds as milliseconds, to a thousandth."""
    return None if seconds is None else round(seconds * 1e3, 3)


def us_each(seconds: float | None, number: int) -> float | None:
    """Seconds over a number of things, in microseconds each."""
    return None if seconds is None or not number else round(seconds / number * 1e6, 1)


def printed(figures: dict[str, Any]) -> None:
    """One line of JSON, with the load of the machine."""
    sys.stdout.write(json.dumps(figures | {"load": round(os.getloadavg()[0], 2)}) + "\n")
    sys.stdout.flush()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Stores]:
    """The stores behind a URL, their schema made where there is none."""
    if url.startswith("postgresql"):
        await find_migrations(url).migrate(url)
    async with open_stores(url) as stores:
        yield stores
