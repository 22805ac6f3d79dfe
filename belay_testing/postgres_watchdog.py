"""The folder of a PostgreSQL server for tests, and the process that clears it when its owner is gone.

The owner holds one end of a pipe, a watchdog process the other. The pipe closes when the owner closes it and also
when the owner is killed; then the watchdog stops the server and removes the folder. An orderly end and a crash take
the same path. This file is also the watchdog's program, so it imports nothing but the standard library.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PATIENCE = 20.0
"""Seconds the owner waits for the folder to be cleared."""

_STOPS = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
"""Signals to PostgreSQL, and the seconds that each may take: fast shutdown, immediate shutdown, kill."""


class Lifeline:
    """A fresh folder that lasts as long as this process, or until ``close``."""

    def __init__(self, *, in_memory: bool) -> None:
        """Make the folder; with ``in_memory`` in shared memory, if possible."""
        shared = Path("/dev/shm")  # noqa: S108 -- mkdtemp makes a private folder below it
        parent = shared if in_memory and os.access(shared, os.W_OK | os.X_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="belay-pg-", dir=parent))
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A keyboard interrupt goes to the owner, which then closes in order.
            start_new_session=True,
        )

    def close(self) -> None:
        """Stop the server and remove the folder; closing again does nothing."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # communicate closes the pipe, which is the signal, and reaps the process.
            self._watchdog.communicate(timeout=_PATIENCE)
        clear(self.folder)


def clear(folder: Path) -> None:
    """Stop the server of this folder and remove the folder."""
    pid = server_pid(folder)
    if pid is not None:
        for number, seconds in _STOPS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if wait_until_gone(folder, pid, seconds):
                break
    shutil.rmtree(folder, ignore_errors=True)


def server_pid(folder: Path) -> int | None:
    """The process id of the running server of this folder, if there is one."""
    try:
        pid = int((folder / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if _serves(pid, folder) else None


def wait_until_gone(folder: Path, pid: int, seconds: float) -> bool:
    """Wait for the server process to end; returns whether it has."""
    deadline = time.monotonic() + seconds
    while _serves(pid, folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _serves(pid: int, folder: Path) -> bool:
    """Whether the process lives and was started on this folder.

    Process ids are reused: only the process that was started may be signalled. A process that has ended and was not
    reaped yet has no command line either.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self/cmdline").exists():
            return False
        command = subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)],  # noqa: S607 -- macOS has no /proc, and ps on PATH
            check=False,
            capture_output=True,
        ).stdout
    return os.fsencode(folder) in command


def main() -> None:
    """Wait for the end of the pipe, then clear the folder named on the command line."""
    sys.stdin.buffer.read()
    clear(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
