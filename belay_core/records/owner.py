"""Who works on a run: owners, leases, and evidence that an owner is gone."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from belay_core.clock import Millis
from belay_core.ids import RunId


@dataclass(frozen=True, slots=True)
class OwnerId:
    """The process that works on a run; all three parts are compared in every fence."""

    host_id: str
    """The machine, since its last start."""
    pid: int
    """The process on that machine."""
    nonce: str
    """A token nobody has used before, so that a process that comes back under the same number is another owner."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Ownership of one run from one acquisition on; every owned command carries it."""

    run_id: RunId
    owner: OwnerId
    epoch: int
    """How often the run has been acquired."""


EvidenceKind: TypeAlias = Literal["same-host-pid-dead", "cross-host-unreachable-stale", "lease-expired"]
"""How it was proved: the process is gone on this host, its host cannot be reached, or its lease has run out."""


@dataclass(frozen=True, slots=True)
class LivenessEvidence:
    """The proof that an owner is gone, bound to that owner and to the moment it was gathered."""

    expected_owner: OwnerId
    checked_at_ms: Millis
    kind: EvidenceKind
    """How it was proved."""
