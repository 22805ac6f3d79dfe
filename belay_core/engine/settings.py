"""Every number of the engine, with its unit and its default."""

from dataclasses import dataclass
from datetime import timedelta

from belay_core.errors import InvalidInput
from belay_core.workflows.names import admitted_span

_MOST_CONCURRENT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a worker works; validated when made."""

    concurrency: int = 100
    """Runs this worker has in hand at once."""
    grace: timedelta = timedelta(seconds=30)
    """How long steps may still run once the worker leaves."""
    poll: float = 0.1
    """Seconds between two looks for runs, where nothing wakes the worker before."""
    linger: float = 1.0
    """Seconds an idle run stays in memory before it is parked."""
    quiet: float = 0.1
    """Seconds without a sign after which code that waits for no ``ctx`` call counts as idle."""
    catch_up: float = 60.0
    """Seconds that a replay waits for a recorded call to be made again, before the run goes to review."""
    threads: int = 32
    """Threads for steps that are not async."""

    def __post_init__(self) -> None:
        """Refuse what does not fit, with ``InvalidInput``."""
        if type(self.concurrency) is not int or not 1 <= self.concurrency <= _MOST_CONCURRENT:
            raise InvalidInput("concurrency", f"must be a whole number from 1 to {_MOST_CONCURRENT}")
        if type(self.threads) is not int or not 1 <= self.threads <= _MOST_CONCURRENT:
            raise InvalidInput("threads", f"must be a whole number from 1 to {_MOST_CONCURRENT}")
        admitted_span("grace", self.grace)
        for name in ("poll", "linger", "quiet"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= 60:  # noqa: PLR2004  (a minute, in seconds)
                raise InvalidInput(name, "must be from 0 to 60 seconds")
