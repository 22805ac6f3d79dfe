"""Time: the only module that reads a clock or waits for one."""

import asyncio
import time
from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Final, Protocol, TypeAlias

Millis: TypeAlias = int
"""A point in time or a duration in whole milliseconds; points in time count from 1970-01-01T00:00:00Z."""


class Clock(Protocol):
    """Two readings and a sleep; injected into stores, engine and context."""

    @abstractmethod
    def now(self) -> float:
        """The store's time, in milliseconds; timestamps and leases are based on it."""

    @abstractmethod
    def elapsed(self) -> float:
        """Milliseconds since an arbitrary start, never set back, counting through a suspended machine."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Return when this clock has advanced by ``seconds``."""


def reading(clock: Clock) -> Millis:
    """The clock's time as it is stored and compared: whole milliseconds, rounded down."""
    return floor(clock.now())


def utc_text(at_ms: Millis) -> str:
    """A time in UTC by ISO 8601, to the millisecond; one beyond the calendar as its number."""
    try:
        found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms after 1970"
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock(Clock):
    """The machine's own clocks."""

    on_loop: Final = True
    """Its sleep is the event loop's."""

    def now(self) -> float:
        """The machine's wall clock, in milliseconds since 1970-01-01T00:00:00Z."""
        return time.time_ns() / 1e6

    def elapsed(self) -> float:
        """Milliseconds of the boot-time clock, or of the monotonic one where a platform has no other."""
        if _BOOTTIME is None:
            return time.monotonic_ns() / 1e6
        return time.clock_gettime_ns(_BOOTTIME) / 1e6

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many seconds on the running event loop."""
        await asyncio.sleep(seconds)


class Signal(asyncio.Event):
    """An event that is cheap to wait for with a timeout (``event_or_time``)."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake every waiter; until ``clear``, waits return at once."""
        super().set()
        for each in self._waiting:
            _pass(each)

    async def within(self, seconds: float) -> None:
        """Return when it is set or the event loop's clock has advanced by ``seconds``, whichever is first."""
        loop = asyncio.get_running_loop()
        passed: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(0 if self.is_set() else seconds, _pass, passed)
        self._waiting.append(passed)
        try:
            await passed
        finally:
            timer.cancel()
            self._waiting.remove(passed)


async def event_or_time(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Return when the event is set or the clock has advanced by ``seconds``, whichever is first."""
    if isinstance(event, Signal) and getattr(clock, "on_loop", False):
        # A quarter of the cost of the two tasks below.
        await event.within(seconds)
        return
    waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(seconds))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


def _pass(passed: "asyncio.Future[None]") -> None:
    if not passed.done():
        passed.set_result(None)
