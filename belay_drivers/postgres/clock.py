"""The database's clock, estimated from samples (kernel 6)."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from belay_core.clock import Clock, Millis, SystemClock

SLOWEST_SAMPLE: Final = 1_000.0
"""Milliseconds; a sample with a longer round trip is dropped, unless it is the first: this machine may be hours off."""
WINDOW: Final = 60_000.0
"""Milliseconds for which a sample counts."""
JUMP: Final = 5_000.0
"""Milliseconds by which the database's clock may change without counting as a jump."""


@dataclass(frozen=True, slots=True)
class _Sample:
    taken: float
    round_trip: float
    offset: float


class FollowingClock(Clock):
    """This machine's boot-time clock, with an offset to the database's clock.

    Each sample is one query with its round trip; the quickest of the last minute counts, since its error is at most
    half of its round trip. A jump of the clock is accepted, but for one stale period after it no owner counts as
    stale (``settled``).
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
        """The time of the database, in milliseconds."""
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
        """Whether the last sample is so old that a new one is needed."""
        return not self._samples or self._base.elapsed() - self._samples[-1].taken > WINDOW / 2

    def learn(self, asked: float, answered: float, database_ms: float) -> None:
        """Add a sample: ``elapsed`` before and after a query, and the database's time between them; milliseconds."""
        round_trip = answered - asked
        if self._sampled and round_trip > SLOWEST_SAMPLE:
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
        """Drop samples from before a jump, so that a quick one does not win over later ones."""
        latest = self._samples[-1]
        if any(abs(sample.offset - latest.offset) > JUMP for sample in self._samples):
            self._samples.clear()
            self._samples.append(latest)
