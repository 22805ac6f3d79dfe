"""Writes that share a commit, and their results (kernel 1 and 5)."""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from belay_core.clock import Millis
from belay_core.records.commands import Park, Settle, Start
from belay_core.records.step_record import OPEN, StepRecord
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.values import json
from belay_drivers.sql.statements.fences import UNCLAIMED, UNOWNED, Fence
from belay_drivers.sql.statements.keys import full_text_of, key_of, step_digest


class RecordOp:
    """Attempts of one run, to be stored under a fence, all or none.

    Not a frozen dataclass, which takes three times as long to make: this is the most frequent write.
    """

    __slots__ = ("attempts", "fence", "rows", "size")

    def __init__(self, fence: Fence, attempts: tuple[StepRecord, ...]) -> None:
        self.fence = fence
        self.attempts = attempts
        self.rows = len(attempts)
        size = 0
        for each in attempts:
            size += _size_of(each)
        self.size = size


@dataclass(frozen=True, slots=True)
class WaitOp:
    """The start of a wait of one run, under a fence: its attempt, and for a gate the approval."""

    fence: Fence
    attempt: StepRecord
    approval: ApprovalRecord | None = None

    rows = 1

    @property
    def size(self) -> int:
        """The approximate number of characters it sends."""
        return _size_of(self.attempt) + (0 if self.approval is None else len(self.approval.subject))

    def asked(self) -> tuple[str | int | None, ...]:
        """The approval, in the order of ``ASKED``, and the facts of its journal entry; all None for a sleep."""
        given = self.approval
        if given is None:
            return (None,) * (len(ASKED) + 1)
        facts = json.encode({"gate": given.gate, "approval_id": given.approval_id})
        asked = (given.approval_id, given.gate, given.subject, given.subject_digest, given.asked_at_ms)
        return (*asked, given.lapse_at_ms, facts)


ASKED: Final = ("approval_id", "gate", "subject", "subject_digest", "asked_at", "lapse_at")
"""The columns of an approval, without those of its attempt's key."""


@dataclass(frozen=True, slots=True)
class ParkOp:
    """A run that is suspended and released, under a fence, without notes of its owner."""

    fence: Fence
    command: Park

    rows = 1

    @property
    def size(self) -> int:
        """The approximate number of characters it sends."""
        return len(self.command.request or "")

    @property
    def waiting(self) -> tuple[str, str | None, Millis | None]:
        """The columns of the wait: reason, token, wake time."""
        waiting = self.command.waiting
        return (waiting.reason, waiting.token, waiting.wake_at_ms)

    @property
    def facts(self) -> str:
        """The facts of its journal entry."""
        reason, token, wake_at_ms = self.waiting
        return json.encode({"reason": reason, "token": token, "wake_at_ms": wake_at_ms})


@dataclass(frozen=True, slots=True)
class SettleOp:
    """The end of one run, under a fence."""

    fence: Fence
    command: Settle

    rows = 1

    @property
    def size(self) -> int:
        """The approximate number of characters it sends."""
        return len(self.command.result or "") + len(self.command.error or "")

    @property
    def facts(self) -> str:
        """The facts of its journal entry."""
        return json.encode({"status": self.command.status.value})


@dataclass(frozen=True, slots=True)
class StartOp:
    """A new run."""

    command: Start
    now_ms: Millis

    rows = 1

    @property
    def key(self) -> str:
        """The key of the run."""
        return key_of(self.command.run_id)

    @property
    def size(self) -> int:
        """The approximate number of characters it sends."""
        return len(self.command.input)

    def row(self) -> tuple[str | int | None, ...]:
        """The run as a row: in the order of ``BEGUN``."""
        given, run_key = self.command, self.key
        return (
            run_key,
            full_text_of(given.run_id, run_key),
            given.workflow,
            given.version,
            given.priority,
            self.now_ms if given.run_at_ms is None else given.run_at_ms,
            self.now_ms,
            given.idempotency_key,
            given.input,
            given.trace,
            json.encode({"workflow": given.workflow, "version": given.version}),
        )


BEGUN = (
    "run_id",
    "full_id",
    "workflow",
    "version",
    "priority",
    "ready_at",
    "created_at",
    "idempotency_key",
    "input",
    "trace",
    "facts",
)
WriteOp: TypeAlias = RecordOp | WaitOp | ParkOp | SettleOp | StartOp


class Applied(NamedTuple):
    """The write is done; the fields are the run's marks.

    ``ambiguous`` says that an ended attempt was stored already, the same or another, and is unchanged.
    """

    ready_at: Millis | None = None
    cancel_requested_at: Millis | None = None
    ambiguous: bool = False


OPEN_STATES: Final = ", ".join(f"'{state.value}'" for state in sorted(OPEN))
"""The states of attempts that a later record replaces, as a list in SQL."""
LET_GO: Final = ", ".join(f"{name} = NULL" for name in (*UNOWNED, *UNCLAIMED))
"""The changes of the run row, in SQL, when its owner releases it."""


ATTEMPT_COLUMNS: Final = (
    "step_key_digest",
    "attempt",
    "full_key",
    "step",
    "kind",
    "state",
    "idempotent",
    "input_digest",
    "recorded",
    "started_at",
    "finished_at",
    "error",
    "outcome",
    "meta",
)
"""What an attempt says of itself; its run and epoch are those of the lease it is written under."""


def attempt_row(attempt: StepRecord) -> tuple[str | int | None, ...]:
    """An attempt in the order of ``ATTEMPT_COLUMNS``."""
    return (
        step_digest(attempt.step_key),
        attempt.attempt,
        attempt.step_key,
        attempt.step,
        str(attempt.kind),
        str(attempt.state),
        int(attempt.idempotent),
        attempt.input_digest,
        attempt.recorded,
        attempt.started_at_ms,
        attempt.finished_at_ms,
        attempt.error,
        attempt.outcome,
        attempt.meta,
    )


def lease_row(fence: Fence) -> tuple[str, str, int, str, int, int]:
    """What the run row must hold for a write under this fence: run, host, process, nonce, epoch, sequence."""
    lease = fence.lease
    owner = lease.owner
    return (fence.key or key_of(lease.run_id), owner.host_id, owner.pid, owner.nonce, lease.epoch, fence.seq)


def _size_of(attempt: StepRecord) -> int:
    return len(attempt.outcome or "") + len(attempt.error or "") + len(attempt.meta)
