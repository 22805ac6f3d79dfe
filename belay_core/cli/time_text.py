"""Times and durations as text for people."""

from typing import Final

from belay_core.clock import Millis, utc_text

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


def time_text(at_ms: Millis | None) -> str | None:
    """A time in UTC (``utc_text``)."""
    return None if at_ms is None else utc_text(at_ms)


def time_and_age(at_ms: Millis | None, now_ms: Millis) -> str | None:
    """A time, and how far away it is."""
    if at_ms is None:
        return None
    away = age(abs(now_ms - at_ms))
    return f"{time_text(at_ms)} ({f'in {away}' if at_ms > now_ms else f'{away} ago'})"


def age(span_ms: Millis) -> str:
    """A duration in its largest unit, rounded down: ``12s``, ``5m``, ``7h``, ``3d``."""
    span = max(span_ms, 0)
    if span < _MINUTE:
        return f"{span // _SECOND}s"
    if span < _HOUR:
        return f"{span // _MINUTE}m"
    if span < 2 * _DAY:
        return f"{span // _HOUR}h"
    return f"{span // _DAY}d"


def duration(span_ms: Millis) -> str:
    """A duration: ``35ms``, ``1.250s``, ``2m 3s``, ``4h 5m``."""
    span = max(span_ms, 0)
    if span < _SECOND:
        return f"{span}ms"
    if span < _MINUTE:
        return f"{span / _SECOND:.3f}s"
    if span < _HOUR:
        return f"{span // _MINUTE}m {span % _MINUTE // _SECOND}s"
    return f"{span // _HOUR}h {span % _HOUR // _MINUTE}m"
