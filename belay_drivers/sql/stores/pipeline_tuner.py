"""Decide whether flushes are pipelined: one half of the writers works during the flush of the other half.

Writers of one flush return with their next writes at the same time, and so stay together: the database is idle while
they work, and they wait while it flushes. In two halves both are busy, each half with its own flush. That is faster if
writers take longer than a flush, and slower if a commit is slow and they are quick. So halves are tried from time to
time, and kept as long as only a small part of a flush is idle time.
"""

import asyncio
from collections.abc import Callable
from typing import Final

MOST_IDLE: Final = 0.5
"""The idle share of a flush (no writer at work) above which halves are slower."""
INITIAL_IDLE: Final = 0.25
"""The idle share that is assumed when halves are tried."""
LATEST_WEIGHT: Final = 1 / 32
"""The weight of the latest flush in the moving average."""
TRY_AGAIN_AFTER: Final = 256
"""Flushes after which halves are tried again."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class PipelineTuner:
    """Observes flushes and writers; the decision is ``in_halves``."""

    def __init__(self, now: Callable[[], float] = _loop_time) -> None:
        self._now = now
        self._wrote = self._began = 0.0
        self._idle = INITIAL_IDLE
        self._whole = 0
        """Flushes left until halves are tried again."""

    @property
    def in_halves(self) -> bool:
        """Whether half of the writers get their results only when the next flush is under way."""
        return not self._whole

    def wrote(self) -> None:
        """Note a new write."""
        self._wrote = self._now()

    def flush_began(self) -> None:
        """Note the start of a flush."""
        self._began = self._now()

    def flush_ended(self) -> None:
        """Note the end of a flush."""
        if self._whole:
            self._whole -= 1
            return
        ended = self._now()
        idle = (ended - max(self._began, self._wrote)) / max(ended - self._began, 1e-9)
        self._idle += LATEST_WEIGHT * (idle - self._idle)
        if self._idle > MOST_IDLE:
            self._idle, self._whole = INITIAL_IDLE, TRY_AGAIN_AFTER
