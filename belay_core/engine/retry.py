"""How long a failed step waits for its next attempt."""

from datetime import timedelta
from typing import Final

from belay_core.clock import Millis
from belay_core.jitter import Jitter

LONGEST_DELAY: Final = timedelta(hours=1)
"""The cap of a delay, unless the step's own backoff is longer."""


def retry_delay(backoff: timedelta, failed: int, jitter: Jitter) -> Millis:
    """Milliseconds from a failure to the next attempt, where ``failed`` attempts failed before this one.

    ``min(backoff * 2**failed, max(backoff, LONGEST_DELAY))``, times a random share between one half and one. The share
    keeps steps that failed together, as they do when a service is down, from coming back together.
    """
    longest = max(backoff, LONGEST_DELAY)
    # A large exponent is cut before it overflows.
    delay = min(backoff * 2 ** min(failed, 32), longest) if backoff < longest else longest
    return int(delay.total_seconds() * 1000 * (0.5 + jitter.draw() / 2))
