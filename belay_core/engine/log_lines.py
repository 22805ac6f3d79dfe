"""What an operator reads in the log (logger ``belay``): one line an event, with ids, names and error types, no values.

Each fact is also in the record's ``extra``: ``run_id``, ``workflow``, ``step_key``, ``attempt``, ``error_type``,
``code``.
"""

import logging
from collections.abc import Sequence
from typing import Final

from belay_core.clock import Clock, Millis
from belay_core.engine.answers import Review
from belay_core.errors import DatabaseError, StoreError
from belay_core.records.owner import Lease
from belay_core.records.workflow_run import RunSummary

LOG: Final = logging.getLogger("belay")
_MOST_STEPS: Final = 3
_SLOW_LOOP_MS: Final = 1_000
"""How late the loop may be: two renewals of a lease are this far apart by default."""


def attempt_failed(run: RunSummary, step_key: str, attempt: int, error: BaseException, wait_ms: Millis | None) -> None:
    """An attempt of a step raised; ``wait_ms`` is the wait before the next one, None for no more."""
    kind = type(error).__name__
    then = "it is not tried again" if wait_ms is None else f"it is tried again in {wait_ms / 1000:.1f} s"
    facts = {**_of(run), "step_key": step_key, "attempt": attempt, "error_type": kind}
    LOG.warning("%s: step %s, attempt %d raised %s; %s", _name(run), step_key, attempt, kind, then, extra=facts)


def run_failed(run: RunSummary, error_type: str) -> None:
    """The run has ended as failed."""
    facts = {**_of(run), "error_type": error_type}
    LOG.error("%s failed with %s; see belay show %s", _name(run), error_type, run.run_id, extra=facts)


def in_review(run: RunSummary, review: Review) -> None:
    """The run waits for an operator."""
    about = "" if review.step_key is None else f" at {review.step_key}"
    facts = {**_of(run), "step_key": review.step_key, "code": review.why}
    words = "%s waits for an operator (%s%s): %s; belay explain %s says what can be done"
    LOG.error(words, _name(run), review.why, about, review.detail, run.run_id, extra=facts)


def left_to_other_code(run: RunSummary, place: str) -> None:
    """The code at hand would drop a part of the run's input."""
    words = "%s is left to a worker with other code: its input has %s, which the code here does not read"
    LOG.warning(words, _name(run), place, extra=_of(run))


def taken_over(run: RunSummary, lease: Lease) -> None:
    """A run was taken whose owner is gone, or did not renew its lease."""
    words = (
        "%s was taken over, acquisition %d: its owner is gone or did not renew its lease (%d since a step was recorded)"
    )
    LOG.warning(words, _name(run), lease.epoch, run.takeovers, extra={**_of(run), "epoch": lease.epoch})


def lease_lapsed(lease: Lease) -> None:
    """A lease could not be renewed in time, and its work is interrupted."""
    LOG.warning("run lease lapsed; interrupting owned work (run %s)", lease.run_id, extra={"run_id": lease.run_id})


def loop_blocked(late_ms: float, steps: Sequence[str]) -> None:
    """The event loop did not run for so long; the steps are those that were executing on it."""
    if late_ms < _SLOW_LOOP_MS:
        return
    named = ", ".join(steps[:_MOST_STEPS]) or "none"
    more = f" and {len(steps) - _MOST_STEPS} more" if len(steps) > _MOST_STEPS else ""
    words = "the event loop was blocked for %.1f s, and no lease was renewed; async steps that were executing: %s%s"
    LOG.warning(words, late_ms / 1000, named, more, extra={"blocked_ms": round(late_ms)})


class StoreTrouble:
    """Trouble of the stores: said when it begins, counted while it goes on, and said again when it is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.since: float | None = None
        """The time at which it began; None where there is none."""
        self._failed = 0

    def failed(self, what: str, error: StoreError) -> None:
        """A call failed and is repeated."""
        self._failed += 1
        if self.since is None:
            self.since = self._clock.elapsed()
            code = code_of(error)
            LOG.warning("%s failed: %s; trying again until it succeeds", what, code, extra={"code": code})

    def succeeded(self) -> None:
        """A call succeeded."""
        if self.since is None:
            return
        seconds, self.since = (self._clock.elapsed() - self.since) / 1000, None
        LOG.warning(
            "the stores answer again after %.1f s and %d failed calls",
            seconds,
            self._failed,
            extra={"failed": self._failed},
        )
        self._failed = 0


def code_of(error: StoreError) -> str:
    """The error's code, with that of the database where there is one."""
    cause = None if error.cause is None else error.cause.get("cause")
    return f"{error.code} ({cause})" if isinstance(cause, DatabaseError) else error.code


def _name(run: RunSummary) -> str:
    return f"run {run.run_id} ({run.workflow})"


def _of(run: RunSummary) -> dict[str, object]:
    return {"run_id": run.run_id, "workflow": run.workflow}
