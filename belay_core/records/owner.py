"""Owners of runs, leases, and evidence that an owner is dead."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from belay_core.clock import Millis
from belay_core.ids import RunId


@dataclass(frozen=True, slots=True)
class OwnerId:
    """The process that owns a run; every fence compares all three parts."""

    host_id: str
    """The machine, since its last start."""
    pid: int
    """The process on that machine."""
    nonce: str
    """A token that was never used before, so that a process with a reused process id is another owner."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Ownership of one run since one acquisition; every owned command carries it."""

    run_id: RunId
    owner: OwnerId
    epoch: int
    """How often the run has been acquired."""


EvidenceKind: TypeAlias = Literal["same-host-pid-dead", "cross-host-unreachable-stale", "lease-expired"]
"""How it was proved: the process is gone on this host, its host cannot be reached, or its lease has expired."""


@dataclass(frozen=True, slots=True)
class LivenessEvidence:
    """The proof that an owner is dead, bound to that owner and to the time at which it was gathered."""

    expected_owner: OwnerId
    checked_at_ms: Millis
    kind: EvidenceKind
    """How it was proved."""
