"""Processes by the dozen: one that has imported everything forks them, so that each costs milliseconds.

It forks before it has a thread or an event loop, and each child begins its own.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

IMPORTED = (
    "belay_drivers.postgres",
    "belay_drivers.sqlite",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
)
"""What opening a database imports, so that children do not have to."""
ROOT = Path(__file__).parents[2]


class Nursery:
    """Starts processes that run a job (``JOBS``) with arguments, kills them and collects them."""

    def __init__(self) -> None:
        self._mother = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._alive: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for pid in list(self._alive):
            self.kill(pid)
        self._mother.communicate(timeout=20)

    def start(self, job: str, *arguments: str) -> int:
        """The id of a new process that does this."""
        pid = int(self._ask({"start": job, "arguments": arguments}))
        self._alive.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        """The process is gone, in whatever it was doing."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.wait(pid)

    def wait(self, pid: int) -> int:
        """The exit code of a process that has come to its end."""
        self._alive.discard(pid)
        return int(self._ask({"wait": pid}))

    def _ask(self, what: dict[str, Any]) -> str:
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.write(json.dumps(what) + "\n")
        self._mother.stdin.flush()
        answer = self._mother.stdout.readline()
        if not answer:
            raise RuntimeError("the process that forks the others is gone")
        return answer


def main() -> None:
    """Fork and collect as asked, until nobody asks any more."""
    for name in IMPORTED:
        import_module(name)
    from tests.faults.killed_writers import write_on
    from tests.faults.migrators import migrate_once

    jobs: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"write": write_on, "migrate": migrate_once}
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            _, status = os.waitpid(asked["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                os.close(0)
                try:
                    asyncio.run(jobs[asked["start"]](*asked["arguments"]))
                except BaseException:  # noqa: BLE001  a child never comes back to its parent's loop
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
