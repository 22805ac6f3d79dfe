"""Lines that somebody types, taken as they come, so that nothing else has to wait for them."""

import asyncio
import os
import termios
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

_READ: Final = 4_096
_LONGEST: Final = 65_536


class Keyboard:
    """Reads a terminal from entering it until leaving it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._partial = b""
        self._lines: deque[str] = deque()
        self.is_closed = False
        """Whether nobody will type anything any more."""

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._file, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def forget(self) -> None:
        """Drop what was typed so far: it cannot have been meant for a question that is only now asked."""
        self._partial = b""
        self._lines.clear()
        with suppress(termios.error):
            # A line that was begun and not ended is still with the terminal.
            termios.tcflush(self._file, termios.TCIFLUSH)

    def line(self) -> str | None:
        """The next line, if there is one."""
        return self._lines.popleft() if self._lines else None

    def _read(self) -> None:
        try:
            read = os.read(self._file, _READ)
        except OSError:
            read = b""
        if not read:
            self._close()
            return
        *whole, self._partial = (self._partial + read).split(b"\n")
        self._partial = self._partial[-_LONGEST:]
        self._lines.extend(line.decode(errors="replace") for line in whole)

    def _close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().remove_reader(self._file)
