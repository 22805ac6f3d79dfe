"""A program of this folder in a process of its own, whose lines are read as they come."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
_PATIENCE = 60.0
"""Seconds until a line is given up."""


def end_with_starter() -> None:
    """Have this process end when the one that started it is gone, however that came."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Apart:
    """A worker in a process of its own, from its first line until the block is left."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = ("-m", module, *arguments)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *self._command),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await self.line('{"ready"')
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        process = self._started()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(5):
                await process.communicate()
        except TimeoutError:
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does."""
        with contextlib.suppress(ProcessLookupError):
            self._started().send_signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it is, so that it lives on and does nothing."""
        self._started().send_signal(signal.SIGSTOP)

    async def line(self, beginning: str) -> str:
        """The next line that begins so."""
        stdout = self._started().stdout
        assert stdout is not None
        async with asyncio.timeout(_PATIENCE):
            while line := (await stdout.readline()).decode():
                if line.startswith(beginning):
                    return line.strip()
        raise SystemExit(f"{' '.join(self._command)} ended without a line that begins {beginning}")

    def _started(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "is entered first"
        return self._process
