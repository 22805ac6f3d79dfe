"""How an asking at a gate is shown to whoever decides."""

from belay_core.cli.output import facts
from belay_core.cli.time_text import moment_and_age
from belay_core.clock import Millis
from belay_core.records.workflow_run import ApprovalRecord


def show_asked(asked: ApprovalRecord, now_ms: Millis, edited: str | None = None) -> None:
    """Show all of what is decided upon: the subject whole and as stored, whatever its length."""
    facts(
        [
            ("run", asked.run_id),
            ("gate", asked.gate),
            ("approval", asked.approval_id),
            ("asked", moment_and_age(asked.asked_at_ms, now_ms)),
            ("lapses", moment_and_age(asked.lapse_at_ms, now_ms)),
            ("subject", asked.subject),
            ("digest", asked.subject_digest),
            ("edited", edited),
        ]
    )
