"""The worker processes of ``--kill``: the demo starts them, replaces those that end, and stops all of them.

``python -m belay_invoices.workers CONCURRENCY`` is one of them. It stops on SIGTERM, and when its standard input ends:
the demo holds that open, so no worker outlives the demo, however it ends.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from belay_core import Stores, Worker, open_stores
from belay_invoices.workflow import WORKFLOWS
from belay_invoices.workspace import VARIABLE, DemoError, Workspace

GRACE: Final = timedelta(seconds=5)
"""How long running steps may still take once a worker stops: several times as long as the slowest step."""

_STOP_TIMEOUT_MS: Final = 10_000
_POLL: Final = 0.005
_MAX_FAILURES: Final = 3


class WorkerPool:
    """Worker processes; those that end are replaced, and all have ended when the block is left."""

    def __init__(self, workspace: Workspace, stores: Stores, *, size: int, concurrency: int) -> None:
        self._workspace = workspace
        self._clock = stores.clock
        self._size = size
        self._command = [sys.executable, "-m", "belay_invoices.workers", str(concurrency)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._failures = 0

    @property
    def pids(self) -> frozenset[int]:
        """The processes that were started and not seen to end."""
        return frozenset(self._processes)

    async def __aenter__(self) -> Self:
        for _ in range(self._size):
            self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes = list(self._processes.values())
        self._processes.clear()
        for process in processes:
            process.terminate()
        deadline = self._clock.elapsed() + _STOP_TIMEOUT_MS
        try:
            while any(process.poll() is None for process in processes) and self._clock.elapsed() < deadline:
                await self._clock.sleep(_POLL)
        finally:
            _reap(processes)

    async def kill(self, pid: int) -> None:
        """SIGKILL one of them; when this returns it has ended, and another one is starting."""
        process = self._processes.pop(pid)
        process.kill()
        while process.poll() is None:
            await self._clock.sleep(_POLL)
        _reap([process])
        self._start()

    def restart_failed(self) -> None:
        """Replace those that ended by themselves. Raises ``DemoError`` where that happens again and again."""
        for pid, process in list(self._processes.items()):
            if process.poll() is None:
                continue
            del self._processes[pid]
            _reap([process])
            self._failures += 1
            if self._failures >= _MAX_FAILURES:
                code, log = process.returncode, self._workspace.workers_log
                raise DemoError(f"the workers end by themselves, the last with exit code {code}; see {log}")
            self._start()

    def _start(self) -> None:
        with self._workspace.workers_log.open("ab") as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # The URL is in the environment, because every user of the machine can list arguments.
                env=os.environ | {VARIABLE: self._workspace.url},
                # Ctrl-C reaches all processes of a terminal's foreground group; the demo stops these itself.
                start_new_session=True,
            )
        self._processes[process.pid] = process


def _reap(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()


async def work(url: str, concurrency: int) -> None:
    """Execute runs of the demo until SIGTERM or the end of the standard input."""
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def stop() -> None:
        loop.remove_reader(stdin)
        os.kill(os.getpid(), signal.SIGTERM)

    async with open_stores(url) as stores:
        loop.add_reader(stdin, stop)
        await Worker(stores, WORKFLOWS, concurrency=concurrency, grace=GRACE).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    asyncio.run(work(os.environ[VARIABLE], int(sys.argv[1])))
