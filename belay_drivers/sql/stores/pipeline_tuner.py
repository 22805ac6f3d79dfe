"""Whether it pays that half of the writers work while the other half's flush is under way.

Writers that are answered by one flush come back with their next writes at once, and so stay together: the database
waits while they work, and they wait while it works. In halves both work all the time, each half for a flush of its own.
That is the better way where writers take longer to come back than a flush takes, and the worse one where a commit is
slow and they are quick. So halves are tried now and then, and kept for as long as little of a flush is mere waiting.
"""

import asyncio
from collections.abc import Callable
from typing import Final

MOST_IDLE: Final = 0.5
"""The share of a flush in which nobody works any more, beyond which halves do not pay."""
AT_FIRST: Final = 0.25
"""The share that is assumed where halves are tried."""
NEWS: Final = 1 / 32
"""How much the last flush counts, against those before."""
AGAIN: Final = 256
"""Flushes after which halves are tried again."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class PipelineTuner:
    """Watches flushes and writers; the answer is ``in_halves``."""

    def __init__(self, now: Callable[[], float] = _loop_time) -> None:
        self._now = now
        self._wrote = self._began = 0.0
        self._idle = AT_FIRST
        self._whole = 0
        """Flushes for which all go together yet."""

    @property
    def in_halves(self) -> bool:
        """Whether half of the writers are told only when the next flush is under way."""
        return not self._whole

    def wrote(self) -> None:
        """A write came in."""
        self._wrote = self._now()

    def flush_began(self) -> None:
        """A flush is sent."""
        self._began = self._now()

    def flush_ended(self) -> None:
        """It is answered."""
        if self._whole:
            self._whole -= 1
            return
        ended = self._now()
        idle = (ended - max(self._began, self._wrote)) / max(ended - self._began, 1e-9)
        self._idle += NEWS * (idle - self._idle)
        if self._idle > MOST_IDLE:
            self._idle, self._whole = AT_FIRST, AGAIN
