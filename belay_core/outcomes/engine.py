"""The answers of the engine's commands (kernel 26)."""

from dataclasses import dataclass
from typing import TypeAlias

from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.outcomes.attempts import Conflict, ExistingSame, Inserted, RunNotFound
from belay_core.outcomes.runs import FenceLost, NotFound
from belay_core.records.owner import Lease
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import RunRecord


@dataclass(frozen=True, slots=True)
class Started:
    """A new run is stored under this id.

    Where the reply of the database was lost, a run of this id that another call stored in the same millisecond is
    taken for this call's own.
    """

    run_id: RunId


@dataclass(frozen=True, slots=True)
class Found:
    """The run was there already, and is untouched."""

    run_id: RunId
    status: RunStatus


@dataclass(frozen=True, slots=True)
class KeyTaken:
    """The idempotency key belongs to a run of another workflow."""

    run_id: RunId
    """The run that has the key."""
    workflow: str
    """The name of its workflow."""


@dataclass(frozen=True, slots=True)
class RunIdTaken:
    """The run id belongs to a run with another workflow, key or input."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The run is owned under this lease, and this is how it stood once it was."""

    lease: Lease
    run: RunRecord


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease goes on.

    ``news_ms`` is the mark somebody set on the run to say that it has something to look at, None where nobody did.
    """

    news_ms: Millis | None
    cancel_requested_at_ms: Millis | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Every attempt of the command is stored, and the lease goes on; the fields are those of ``Renewed``."""

    news_ms: Millis | None
    cancel_requested_at_ms: Millis | None


@dataclass(frozen=True, slots=True)
class News:
    """Nothing was written: the run has something to look at that its owner has not seen."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The run is suspended and has no owner."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The run is over, at this moment."""

    finished_at_ms: Millis


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision counts, and was made at this moment."""

    decided_at_ms: Millis


@dataclass(frozen=True, slots=True)
class AlreadyDecided:
    """An earlier decision stands."""

    decision: str
    """``approved``, ``rejected``, ``lapsed`` or ``withdrawn``."""
    decided_by: str | None
    """Who decided; None where nobody did."""
    decided_at_ms: Millis


@dataclass(frozen=True, slots=True)
class SubjectChanged:
    """The digest is not that of the subject that is asked about."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """The gate has lapsed or was withdrawn, or its run is over."""


@dataclass(frozen=True, slots=True)
class NoSuchApproval:
    """Nobody asked this."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """By the store's clock the gate lapses only at this moment."""

    lapse_at_ms: Millis


@dataclass(frozen=True, slots=True)
class Resolved:
    """The operator's word is stored, and the run may go on (or has failed, where that was the word)."""

    resolved_at_ms: Millis


@dataclass(frozen=True, slots=True)
class NotInReview:
    """Nothing of this run waits for an operator's word of this kind."""


@dataclass(frozen=True, slots=True)
class Woken:
    """So many runs were due, and may be taken now."""

    count: int
    """How many."""


StartOutcome: TypeAlias = Started | Found | KeyTaken | RunIdTaken
"""The answers of ``EngineStore.start``."""
RenewOutcome: TypeAlias = Renewed | FenceLost | RunNotFound
"""The answers of ``EngineStore.renew``, one for each lease."""
RecordOutcome: TypeAlias = Recorded | Conflict | FenceLost | RunNotFound
"""The answers of ``EngineStore.record``."""
AskOutcome: TypeAlias = Inserted | ExistingSame | Conflict | FenceLost | RunNotFound
"""The answers of ``EngineStore.ask``."""
SleepOutcome: TypeAlias = AskOutcome
"""The answers of ``EngineStore.sleep``."""
WithdrawOutcome: TypeAlias = RecordOutcome
"""The answers of ``EngineStore.withdraw``."""
LapseOutcome: TypeAlias = Recorded | AlreadyDecided | NotYet | NoSuchApproval | Conflict | FenceLost | RunNotFound
"""The answers of ``EngineStore.lapse``."""
DecideOutcome: TypeAlias = Decided | AlreadyDecided | SubjectChanged | TooLate | NoSuchApproval
"""The answers of ``EngineStore.decide``."""
ParkOutcome: TypeAlias = Parked | News | FenceLost | RunNotFound
"""The answers of ``EngineStore.park``."""
SettleOutcome: TypeAlias = Settled | News | FenceLost | RunNotFound
"""The answers of ``EngineStore.settle``."""
ResolveOutcome: TypeAlias = Resolved | NotInReview | NotFound
"""The answers of ``EngineStore.resolve``."""
