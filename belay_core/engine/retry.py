"""Whether a failed step is tried again, and after which time."""

from datetime import timedelta
from typing import Final

from belay_core.clock import Millis
from belay_core.errors import TryAgain
from belay_core.jitter import Jitter
from belay_core.workflows.retry_rules import RetryRules

LONGEST_DELAY: Final = timedelta(hours=1)
"""The cap of a delay, unless the step's own backoff is longer or it has a cap of its own."""


def next_attempt(rules: RetryRules, error: BaseException, failed: int, jitter: Jitter) -> Millis | None:
    """Milliseconds from this error to the next attempt, where ``failed`` attempts failed before; None for no more."""
    if failed >= rules.retries or not rules.may_mend(error):
        return None
    if isinstance(error, TryAgain) and error.after is not None:
        return int(error.after.total_seconds() * 1000)
    return retry_delay(rules, failed, jitter)


def retry_delay(rules: RetryRules, failed: int, jitter: Jitter) -> Millis:
    """Milliseconds from a failure to the next attempt, where ``failed`` attempts failed before this one.

    ``min(backoff * 2**failed, max_backoff)``, times a random share between one half and one unless ``jitter`` is off.
    The share keeps steps that failed together, as they do when a service is down, from coming back together.
    """
    longest = rules.max_backoff or max(rules.backoff, LONGEST_DELAY)
    # A large exponent is cut before it overflows.
    delay = min(rules.backoff * 2 ** min(failed, 32), longest) if rules.backoff < longest else longest
    share = 0.5 + jitter.draw() / 2 if rules.jitter else 1.0
    return int(delay.total_seconds() * 1000 * share)
