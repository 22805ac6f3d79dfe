"""Numbers that every store keeps exactly, and clock readings that decide a lease (specs, run store 2.2 and 2.3)."""

from typing import TypeGuard

from belay_core import limits
from belay_core.clock import Millis


def is_safe(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number from 0 to 2^53 - 1; ``True`` and ``1.0`` are not."""
    return type(value) is int and 0 <= value <= limits.MAX_SAFE_INTEGER


def runs_ahead(now_ms: Millis, clock_ms: Millis) -> bool:
    """Whether a caller's reading is further ahead of the store's clock than clocks may differ."""
    return now_ms > clock_ms + limits.HEARTBEAT_SKEW_ALLOWANCE
