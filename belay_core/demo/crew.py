"""A worker of the demo as a process of its own: ``python -m belay_core.demo.crew``.

The database's URL is in ``BELAY_DATABASE``. It leaves in good order on SIGTERM, and when its standard input ends:
that is held open by the demo, so no worker outlives it, whichever way it ends.
"""

import asyncio
import logging
import os
import signal
import sys
from datetime import timedelta
from typing import Final

from belay_core.demo.places import VARIABLE
from belay_core.demo.workflow import WORKFLOWS
from belay_core.stores.drivers import open_stores
from belay_core.worker import Worker

GRACE: Final = timedelta(seconds=5)
"""How long running steps may still take once a worker leaves: several times what the slowest takes."""


async def work(url: str, concurrency: int) -> None:
    """Execute runs of the demo until told to leave."""
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def leave() -> None:
        loop.remove_reader(stdin)
        os.kill(os.getpid(), signal.SIGTERM)

    async with open_stores(url) as stores:
        loop.add_reader(stdin, leave)
        await Worker(stores, WORKFLOWS, concurrency=concurrency, grace=GRACE).run()


def main() -> None:
    """The process."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    asyncio.run(work(os.environ[VARIABLE], int(sys.argv[1])))


if __name__ == "__main__":
    main()
