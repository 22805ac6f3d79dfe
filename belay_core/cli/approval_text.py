"""An approval as text, for the person who decides."""

from belay_core.cli.output import write_fields
from belay_core.cli.time_text import time_and_age
from belay_core.clock import Millis
from belay_core.records.workflow_run import ApprovalRecord


def show_approval(approval: ApprovalRecord, now_ms: Millis, edited: str | None = None) -> None:
    """Print an approval with its whole subject, as it is stored and whatever its length."""
    write_fields(
        [
            ("run", approval.run_id),
            ("gate", approval.gate),
            ("approval", approval.approval_id),
            ("asked", time_and_age(approval.asked_at_ms, now_ms)),
            ("lapses", time_and_age(approval.lapse_at_ms, now_ms)),
            ("subject", approval.subject),
            ("digest", approval.subject_digest),
            ("edited", edited),
        ]
    )
