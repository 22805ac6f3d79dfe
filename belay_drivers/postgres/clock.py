"""The database's clock, followed without asking it each time (kernel 6)."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from belay_core.clock import Clock, Millis, SystemClock

SLOWEST_SAMPLE: Final = 1_000.0
"""Milliseconds a question may take to tell anything about the time."""
WINDOW: Final = 60_000.0
"""Milliseconds for which a sample counts."""
JUMP: Final = 5_000.0
"""Milliseconds by which the database's clock may change its mind unnoticed."""


@dataclass(frozen=True, slots=True)
class _Sample:
    taken: float
    round_trip: float
    offset: float


class FollowingClock(Clock):
    """This machine's boot-time clock, moved to where the database's stands.

    Each sample is one question with the time it took; the quickest of the last minute counts, since half of its
    round trip is all it can be wrong by. A clock that seems to jump is believed, but for one stale period nobody
    is called silent by it (``settled``).
    """

    def __init__(self, base: Clock | None = None, *, stale_after_ms: Millis) -> None:
        self._base = base or SystemClock()
        self._stale_after = stale_after_ms
        self._samples: deque[_Sample] = deque()
        self._offset = self._base.now() - self._base.elapsed()
        self._sampled = False
        self._unsettled_until = float("-inf")

    @property
    def on_loop(self) -> bool:
        """Whether its sleep is the event loop's."""
        return bool(getattr(self._base, "on_loop", False))

    def now(self) -> float:
        """The moment as the database sees it."""
        return self._base.elapsed() + self._offset

    def elapsed(self) -> float:
        """The boot-time clock."""
        return self._base.elapsed()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await self._base.sleep(seconds)

    def settled(self) -> bool:
        """Whether the clock has not jumped within the last stale period."""
        return self._base.elapsed() >= self._unsettled_until

    def is_due(self) -> bool:
        """Whether the last sample is so old that the next one should not be left to chance."""
        return not self._samples or self._base.elapsed() - self._samples[-1].taken > WINDOW / 2

    def learn(self, asked: float, answered: float, database_ms: float) -> None:
        """Take a sample: ``elapsed`` before and after a question, and the database's answer between them."""
        round_trip = answered - asked
        if round_trip > SLOWEST_SAMPLE:
            return
        self._samples.append(_Sample(answered, round_trip, database_ms - (asked + answered) / 2))
        while answered - self._samples[0].taken > WINDOW:
            self._samples.popleft()
        self._forget_before_jump()
        offset = min(self._samples, key=lambda sample: sample.round_trip).offset
        if self._sampled and abs(offset - self._offset) > JUMP:
            self._unsettled_until = answered + self._stale_after
        self._offset = offset
        self._sampled = True

    def _forget_before_jump(self) -> None:
        """A quick sample from before a jump must not outvote those after it."""
        latest = self._samples[-1]
        if any(abs(sample.offset - latest.offset) > JUMP for sample in self._samples):
            self._samples.clear()
            self._samples.append(latest)
