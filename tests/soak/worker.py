"""``python -m tests.soak.worker URL FOLDER``: a worker in a process of its own, whose wall clock can be stepped."""

import asyncio
import logging
import os
import sys
from pathlib import Path

from belay_core import Worker, open_stores
from belay_core.clock import SystemClock
from tests.soak.flows import LEDGER, soak

GRACE = 2


class SteppedClock(SystemClock):
    """The machine's clocks; the wall clock is off by the milliseconds in a file."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_RDONLY)

    def now(self) -> float:
        return super().now() + int(os.pread(self._file, 16, 0) or 0)


async def main(url: str, folder: Path) -> None:
    """Execute runs until it is told to leave, or is killed."""
    from datetime import timedelta

    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s")
    LEDGER.open(folder / "ledger")
    async with open_stores(url, clock=SteppedClock(folder / "clock")) as stores:
        worker = Worker(stores, [soak], concurrency=20, grace=timedelta(seconds=GRACE), telemetry=False)
        await worker.run((folder / f"ready-{os.getpid()}").touch)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
