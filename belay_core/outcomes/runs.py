"""The answers of RunStore, and one union per operation (specs, run store 6)."""

from dataclasses import dataclass
from typing import TypeAlias

from belay_core.moments import Millis
from belay_core.records.run import RunStatus


@dataclass(frozen=True, slots=True)
class NotFound:
    """There is no such run, or no such attempt."""


@dataclass(frozen=True, slots=True)
class Activated:
    """The caller owns the run now."""


@dataclass(frozen=True, slots=True)
class AlreadyClaimed:
    """Somebody has reserved the run."""


@dataclass(frozen=True, slots=True)
class HeartbeatFresh:
    """Its owner was heard of within the last thirty seconds."""


@dataclass(frozen=True, slots=True)
class SnapshotChanged:
    """The run is no longer what the caller read."""


@dataclass(frozen=True, slots=True)
class EvidenceRequired:
    """The owner is stale, and nothing proves that it is gone."""


@dataclass(frozen=True, slots=True)
class Updated:
    """The sign of life is stored; a late one never moves the stamp back."""


@dataclass(frozen=True, slots=True)
class FenceLost:
    """The run is not running under this owner; nothing was written."""


@dataclass(frozen=True, slots=True)
class Transitioned:
    """The run has its new status."""


@dataclass(frozen=True, slots=True)
class GuardFailed:
    """The run is owned, but cancellation stands otherwise than the guard demands."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The request is stored, made at this moment."""

    requested_at_ms: Millis


@dataclass(frozen=True, slots=True)
class AlreadyRequested:
    """An earlier request, made at this moment, stands."""

    requested_at_ms: Millis


@dataclass(frozen=True, slots=True)
class Terminal:
    """The run is over."""

    status: RunStatus


@dataclass(frozen=True, slots=True)
class Claimed:
    """The run is reserved; the claimant and this moment together are the token of the claim."""

    claimed_at_ms: Millis


@dataclass(frozen=True, slots=True)
class LivenessUnconfirmed:
    """The evidence does not prove that this owner is gone."""


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """The claim is not, or no longer, the run's."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The claim is given up."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A claim whose claimant is gone was cleared."""


@dataclass(frozen=True, slots=True)
class ClaimFresh:
    """The claim is not old enough to be recovered."""


@dataclass(frozen=True, slots=True)
class ClaimChanged:
    """Another claim, or none, stands where the stale one stood."""


ClaimLoss: TypeAlias = NotFound | AlreadyClaimed | HeartbeatFresh | SnapshotChanged
"""Why a run cannot be claimed."""
ClaimAndOwnOutcome: TypeAlias = Activated | EvidenceRequired | ClaimLoss
"""The answers of ``RunStore.claim_and_own``."""
ClaimOutcome: TypeAlias = Claimed | ClaimLoss
"""The answers of ``RunStore.claim``."""
StealOutcome: TypeAlias = Claimed | LivenessUnconfirmed | ClaimLoss
"""The answers of ``RunStore.steal``."""
ActivateOutcome: TypeAlias = Activated | ClaimLost | SnapshotChanged
"""The answers of ``RunStore.activate``."""
AbandonClaimOutcome: TypeAlias = Abandoned | ClaimLost
"""The answers of ``RunStore.abandon_claim``."""
RecoverClaimOutcome: TypeAlias = Recovered | NotFound | ClaimFresh | ClaimChanged | LivenessUnconfirmed
"""The answers of ``RunStore.recover_claim``."""
HeartbeatOutcome: TypeAlias = Updated | FenceLost | NotFound
"""The answers of ``RunStore.heartbeat`` and ``RunStore.reconfirm``."""
TransitionOutcome: TypeAlias = Transitioned | FenceLost | NotFound | GuardFailed
"""The answers of ``RunStore.transition_owned``."""
RequestCancelOutcome: TypeAlias = CancelRequested | AlreadyRequested | NotFound | Terminal
"""The answers of ``RunStore.request_cancel``, ``RunStore.request_cancel_lineage`` and ``EngineStore.cancel``."""
