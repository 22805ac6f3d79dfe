"""RunStore: the runs and their fenced ownership (specs, run store 6), put together from roles."""

from abc import abstractmethod
from typing import Protocol

from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.outcomes.runs import (
    AbandonClaimOutcome,
    ActivateOutcome,
    ClaimAndOwnOutcome,
    ClaimOutcome,
    HeartbeatOutcome,
    RecoverClaimOutcome,
    RequestCancelOutcome,
    StealOutcome,
    TransitionOutcome,
)
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunRow, RunSnapshot, RunStatus, TransitionGuard


class RunReads(Protocol):
    """What is known of a run."""

    @abstractmethod
    async def get(self, run_id: RunId) -> RunRow:
        """The run as it stands (6.2).

        Raises ``RunStoreError``: ``invalid_run``; ``not_found_row`` where there is none; ``decode_failed`` where
        the row breaks an invariant; ``persistence_failed``.
        """


class Creation(Protocol):
    """Making runs."""

    @abstractmethod
    async def create(self, run_id: RunId, state_json: str, options: CreateOptions | None = None) -> None:
        """Store a pending run whose state is this JSON text, to the byte (6.1).

        Raises ``RunStoreError``: ``invalid_run``; ``constraint`` for a known id, an unknown parent or a taken
        place in a lineage; ``persistence_failed``. A run made here has no workflow and no worker takes it.
        """


class Claims(Protocol):
    """Becoming the owner of a run."""

    @abstractmethod
    async def claim_and_own(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        owner: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence | None = None,
    ) -> ClaimAndOwnOutcome:
        """Own the run at once, if it still is what ``expected`` says (6.8).

        ``now_ms`` is the caller's reading, at most ten seconds ahead of the store's clock; it decides freshness
        and stamps the heartbeat. A running run is taken only when its heartbeat is over thirty seconds old, and
        from another owner only with evidence about that owner at exactly ``now_ms``.
        """


class Ownership(Protocol):
    """What only the owner may do; every answer can be ``FenceLost``."""

    @abstractmethod
    async def heartbeat(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> HeartbeatOutcome:
        """Store a sign of life (6.12)."""

    @abstractmethod
    async def transition_owned(
        self,
        run_id: RunId,
        owner: OwnerId,
        to_status: RunStatus,
        state_json: str | None = None,
        guard: TransitionGuard | None = None,
    ) -> TransitionOutcome:
        """Move the owned run on; anything but ``running`` lets it go (6.14).

        The guard is judged in the same write as the fence: a cancel request cannot slip in between.
        """


class Lineages(Protocol):
    """Chains of runs that are one piece of work to the outside (6.3)."""

    @abstractmethod
    async def lineage(self, run_id: RunId) -> tuple[RunRow, ...]:
        """Every round of the lineage of the named run, in order; nothing for an unknown id."""

    @abstractmethod
    async def latest_round(self, run_id: RunId) -> RunRow:
        """The last round of the lineage, found from any of them. Raises ``not_found_row`` for an unknown id."""


class Cancellation(Protocol):
    """Asking a run to stop, and the owner's word that it heard (6.4 to 6.6)."""

    @abstractmethod
    async def request_cancel(self, run_id: RunId, now_ms: Millis) -> RequestCancelOutcome:
        """Ask one round to stop; the first request stands, and a run that is over says so."""

    @abstractmethod
    async def request_cancel_lineage(self, run_id: RunId, now_ms: Millis) -> RequestCancelOutcome:
        """Ask every live round of the lineage to stop, all of them or none."""

    @abstractmethod
    async def acknowledge_cancel(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> bool:
        """Keep that the owner saw the request; the first record stands, and False means there was nothing to see."""


class TwoPhaseClaims(Protocol):
    """Reserving a run first and owning it then, also from the dead (6.7, 6.9 to 6.11, 6.15)."""

    @abstractmethod
    async def claim(
        self, run_id: RunId, expected: RunSnapshot | RunRow, claimant: OwnerId, now_ms: Millis
    ) -> ClaimOutcome:
        """Reserve a pending or suspended run that still is what ``expected`` says."""

    @abstractmethod
    async def activate(
        self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis, expected: RunSnapshot | RunRow
    ) -> ActivateOutcome:
        """Turn a claim into ownership; where the run has changed the claim is given up."""

    @abstractmethod
    async def abandon_claim(self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis) -> AbandonClaimOutcome:
        """Give up a claim; owner and heartbeat stay."""

    @abstractmethod
    async def recover_claim(
        self,
        run_id: RunId,
        stale_claimant: OwnerId,
        claimed_at_ms: Millis,
        observer: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> RecoverClaimOutcome:
        """Clear a stale claim whose claimant is proven gone."""

    @abstractmethod
    async def steal(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        claimant: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> StealOutcome:
        """Reserve a running run whose owner is stale and proven gone; the owner stays until activation."""


class Reconfirmation(Protocol):
    """A heartbeat for an owner in doubt (6.13)."""

    @abstractmethod
    async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> HeartbeatOutcome:
        """Store a sign of life, unless anybody has claimed the run."""


class RunStore(RunReads, Creation, Lineages, Cancellation, Claims, TwoPhaseClaims, Ownership, Reconfirmation, Protocol):
    """Every operation is one write: it happens wholly, or not at all."""
