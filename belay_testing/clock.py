"""A clock that only the test advances."""

import asyncio
import heapq
from datetime import timedelta

from belay_core.clock import Clock

_START = 1_767_571_200_001.0
"""2026-01-05T00:00:00.001Z: one tick past the round number, so that a store that rounds is detected."""


class ManualClock(Clock):
    """Both readings advance together, by hand; a sleeper wakes when its time is reached.

    It begins at ``now``, in milliseconds since 1970-01-01T00:00:00Z.
    """

    def __init__(self, now: float = _START) -> None:
        self._now = now
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        """The time that the test has set, in milliseconds."""
        return self._now

    def elapsed(self) -> float:
        """Milliseconds by which the test has advanced the clock."""
        return self._elapsed

    def advance(self, by: timedelta | float) -> None:
        """Advance by a timedelta or by milliseconds, and wake those whose sleep is over."""
        step = by.total_seconds() * 1000 if isinstance(by, timedelta) else by
        self._now += step
        self._elapsed += step
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    def next_due(self) -> float | None:
        """Milliseconds until the first sleeper wakes, None without sleepers."""
        return self._sleepers[0][0] - self._elapsed if self._sleepers else None

    def set(self, now: float) -> None:
        """Step the wall clock alone to a time in milliseconds; sleepers and ``elapsed`` are not affected."""
        self._now = now

    async def sleep(self, seconds: float) -> None:
        """Return when the test has advanced the clock by ``seconds``."""
        if seconds <= 0:
            await asyncio.sleep(0)  # noqa: TID251  (a switch to other tasks, no wait)
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        entry = (self._elapsed + seconds * 1000, self._count, sleeper)
        heapq.heappush(self._sleepers, entry)
        try:
            await sleeper
        except asyncio.CancelledError:
            if entry in self._sleepers:
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)
            raise
