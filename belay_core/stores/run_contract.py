"""RunContract: runs and their fenced ownership (specs, run store 6), composed of small protocols."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, Protocol, TypeAlias, get_args

from belay_core.clock import Clock, Millis, reading
from belay_core.errors import RunStoreError, StoreError
from belay_core.ids import RunId
from belay_core.records.owner import EvidenceKind, LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunRow, RunSnapshot, RunStatus, TransitionGuard
from belay_core.stores.checks import copied, owner_fields, owner_of
from belay_core.values import json
from belay_core.values.numbers import is_safe, runs_ahead
from belay_core.values.text import is_durable


@dataclass(frozen=True, slots=True)
class NotFound:
    """There is no such run, or no such attempt."""


@dataclass(frozen=True, slots=True)
class Activated:
    """The caller owns the run now."""


@dataclass(frozen=True, slots=True)
class AlreadyClaimed:
    """Another caller has claimed the run."""


@dataclass(frozen=True, slots=True)
class HeartbeatFresh:
    """The owner's heartbeat is at most thirty seconds old."""


@dataclass(frozen=True, slots=True)
class SnapshotChanged:
    """The run is no longer what the caller read."""


@dataclass(frozen=True, slots=True)
class EvidenceRequired:
    """The owner is stale, and there is no evidence that it is dead."""


@dataclass(frozen=True, slots=True)
class Updated:
    """The heartbeat is stored; a late one never moves the time back."""


@dataclass(frozen=True, slots=True)
class FenceLost:
    """The run is not running under this owner; nothing was written."""


@dataclass(frozen=True, slots=True)
class Transitioned:
    """The run has its new status."""


@dataclass(frozen=True, slots=True)
class GuardFailed:
    """The run is owned, but its cancel request does not match the guard."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The request is stored, with this time."""

    requested_at_ms: Millis


@dataclass(frozen=True, slots=True)
class AlreadyRequested:
    """An earlier request, with this time, is kept."""

    requested_at_ms: Millis


@dataclass(frozen=True, slots=True)
class Terminal:
    """The run has ended."""

    status: RunStatus


@dataclass(frozen=True, slots=True)
class Claimed:
    """The run is claimed; the claimant and this time together are the token of the claim."""

    claimed_at_ms: Millis


@dataclass(frozen=True, slots=True)
class LivenessUnconfirmed:
    """The evidence does not prove that this owner is dead."""


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """The run does not have, or no longer has, this claim."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The claim is released."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The claim of a dead claimant was cleared."""


@dataclass(frozen=True, slots=True)
class ClaimFresh:
    """The claim is not old enough to be recovered."""


@dataclass(frozen=True, slots=True)
class ClaimChanged:
    """The run has another claim than the stale one, or none."""


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
"""The answers of ``RunStore.request_cancel``, ``RunStore.request_cancel_lineage`` and ``RunStore.cancel``."""


class RunReads(Protocol):
    """Reads of a run."""

    @abstractmethod
    async def get(self, run_id: RunId) -> RunRow:
        """The run (6.2).

        Raises ``RunStoreError``: ``invalid_run``; ``not_found_row`` if there is none; ``decode_failed`` if
        the row breaks an invariant; ``persistence_failed``.
        """


class Creation(Protocol):
    """Creation of runs."""

    @abstractmethod
    async def create(self, run_id: RunId, state_json: str, options: CreateOptions | None = None) -> None:
        """Store a pending run whose state is exactly this JSON text (6.1).

        Raises ``RunStoreError``: ``invalid_run``; ``constraint`` for a known id, an unknown parent or a taken
        position in a lineage; ``persistence_failed``. A run created here has no workflow and no worker acquires it.
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
        """Own the run in one step, if it still matches ``expected`` (6.8).

        ``now_ms`` is the caller's reading, at most ten seconds ahead of the store's clock; it decides freshness
        and is stored as the heartbeat. A running run is taken over only if its heartbeat is over 30 s old, and
        from another owner only with evidence about that owner at exactly ``now_ms``.
        """


class Ownership(Protocol):
    """Operations of the owner; every outcome can be ``FenceLost``."""

    @abstractmethod
    async def heartbeat(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> HeartbeatOutcome:
        """Store a heartbeat (6.12)."""

    @abstractmethod
    async def transition_owned(
        self,
        run_id: RunId,
        owner: OwnerId,
        to_status: RunStatus,
        state_json: str | None = None,
        guard: TransitionGuard | None = None,
    ) -> TransitionOutcome:
        """Change the status of the owned run; any status but ``running`` releases it (6.14).

        Guard and fence are checked in the same write: no cancel request can come between.
        """


class Lineages(Protocol):
    """Lineages: chains of runs that callers see as one piece of work (6.3)."""

    @abstractmethod
    async def lineage(self, run_id: RunId) -> tuple[RunRow, ...]:
        """Every round of the lineage of the named run, in order; empty for an unknown id."""

    @abstractmethod
    async def latest_round(self, run_id: RunId) -> RunRow:
        """The last round of the lineage, found from any of them. Raises ``not_found_row`` for an unknown id."""


class Cancellation(Protocol):
    """Cancel requests, and their acknowledgement by the owner (6.4 to 6.6)."""

    @abstractmethod
    async def request_cancel(self, run_id: RunId, now_ms: Millis) -> RequestCancelOutcome:
        """Request the cancel of one round; the first request is kept, a run that has ended is ``Terminal``."""

    @abstractmethod
    async def request_cancel_lineage(self, run_id: RunId, now_ms: Millis) -> RequestCancelOutcome:
        """Request the cancel of every live round of the lineage, all or none."""

    @abstractmethod
    async def acknowledge_cancel(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> bool:
        """Store that the owner saw the request; the first record is kept, and False means that there was no request."""


class TwoPhaseClaims(Protocol):
    """Claims in two phases, reserve and own, also of a dead owner's run (6.7, 6.9 to 6.11, 6.15)."""

    @abstractmethod
    async def claim(
        self, run_id: RunId, expected: RunSnapshot | RunRow, claimant: OwnerId, now_ms: Millis
    ) -> ClaimOutcome:
        """Reserve a pending or suspended run that still matches ``expected``."""

    @abstractmethod
    async def activate(
        self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis, expected: RunSnapshot | RunRow
    ) -> ActivateOutcome:
        """Turn a claim into ownership; if the run has changed, the claim is released."""

    @abstractmethod
    async def abandon_claim(self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis) -> AbandonClaimOutcome:
        """Release a claim; owner and heartbeat are unchanged."""

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
        """Clear a stale claim with evidence that its claimant is dead."""

    @abstractmethod
    async def steal(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        claimant: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> StealOutcome:
        """Reserve a running run whose owner is stale and proven dead; the owner is kept until activation."""


class Reconfirmation(Protocol):
    """A heartbeat for an owner in doubt (6.13)."""

    @abstractmethod
    async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> HeartbeatOutcome:
        """Store a heartbeat, unless the run is claimed."""


class RunContract(
    RunReads, Creation, Lineages, Cancellation, Claims, TwoPhaseClaims, Ownership, Reconfirmation, Protocol
):
    """The contract's operations on runs; each is one atomic write."""


COMPANION_PREFIX: Final = "flows.companion/"
"""Ids with this prefix are refused."""
_KINDS: Final[dict[str, EvidenceKind]] = {kind: kind for kind in get_args(EvidenceKind)}
_CANCEL_STATES: Final[dict[str, Literal["absent", "present"]]] = {"absent": "absent", "present": "present"}

_DURABLE: Final = "must be well-formed durable text"
_RESERVED: Final = "names a reserved journal companion stream"
_SAFE: Final = "must be a non-negative safe integer"
_AHEAD: Final = "runs ahead of the store clock by more than the heartbeat skew allowance"
_BROKEN: Final = "violates the durable contract"


@dataclass(frozen=True, slots=True)
class RunInput:
    """Checks of one RunStore call; ``method`` is named in its errors, which are of the class ``error``."""

    method: str
    error: type[StoreError] = RunStoreError

    def refuse(self, field: str, detail: str, **more: object) -> NoReturn:
        """Raise ``invalid_run`` about this parameter; no rejected value may be among ``more``."""
        cause = {**more, "field": field, "detail": detail}
        raise self.error("invalid_run", self.method, "run input is invalid", cause)

    def run_id(self, value: object) -> RunId:
        """A run id."""
        if not is_durable(value):
            self.refuse("run_id", _DURABLE)
        return RunId(value)

    def new_run_id(self, value: object) -> RunId:
        """A run id that a new run may have."""
        run_id = self.run_id(value)
        if run_id.startswith(COMPANION_PREFIX):
            self.refuse("run_id", _RESERVED)
        return run_id

    def owner(self, value: object, field: str = "owner") -> OwnerId:
        """An owner, copied."""
        copy = owner_fields(value)
        if copy is None:
            self.refuse(field, "must be an inert owner record")
        owner = owner_of(copy)
        if owner is None:
            self.refuse(field, "must be a valid owner identity")
        return owner

    def moment(self, value: object, field: str) -> Millis:
        """A time in milliseconds that decides no lease."""
        if not is_safe(value):
            self.refuse(field, _SAFE)
        return value

    def lease_reading(self, value: object, clock: Clock, run_id: RunId, **about: object) -> Millis:
        """A clock reading in milliseconds that decides a lease: whole, and not too far ahead of the store's clock.

        ``about`` adds details to the error.
        """
        if not is_safe(value):
            self.refuse("now_ms", _SAFE)
        clock_ms = reading(clock)
        if runs_ahead(value, clock_ms):
            self.refuse("now_ms", _AHEAD, run_id=run_id, **about, now_ms=value, clock_ms=clock_ms)
        return value

    def snapshot(self, value: object) -> RunSnapshot:
        """What the caller read of a run; a ``RunRow`` is accepted as well."""
        copy = copied(
            value,
            kinds=(RunSnapshot, RunRow),
            required=("status", "owner", "heartbeat_at_ms"),
            open_ended=True,
        )
        if copy is None:
            self.refuse("expected", "must be an inert snapshot record")
        status, heartbeat = _status(copy["status"]), copy["heartbeat_at_ms"]
        if status is None or not (heartbeat is None or is_safe(heartbeat)):
            self.refuse("expected", "contains an invalid status or heartbeat")
        owner = None if copy["owner"] is None else self.owner(copy["owner"], "expected.owner")
        running = status is RunStatus.RUNNING
        if (owner is not None) is not running or (heartbeat is not None) is not running:
            self.refuse("expected", "violates ownership invariants")
        return RunSnapshot(status, owner, heartbeat)

    def evidence(self, value: object) -> LivenessEvidence | None:
        """Evidence that an owner is dead, copied; whether it matches is not checked here."""
        return None if value is None else self.proof(value)

    def proof(self, value: object) -> LivenessEvidence:
        """Evidence, for an operation that requires it."""
        copy = copied(value, kinds=(LivenessEvidence,), required=("expected_owner", "checked_at_ms", "kind"))
        if copy is None:
            self.refuse("evidence", "must be an inert evidence record")
        owner = self.owner(copy["expected_owner"], "evidence.expected_owner")
        if not is_safe(copy["checked_at_ms"]):
            self.refuse("evidence.checked_at_ms", _SAFE)
        kind = _KINDS.get(copy["kind"]) if type(copy["kind"]) is str else None
        if kind is None:
            self.refuse("evidence.kind", _BROKEN)
        return LivenessEvidence(owner, copy["checked_at_ms"], kind)

    def options(self, value: object) -> CreateOptions:
        """Where a new run belongs, copied."""
        if value is None:
            return CreateOptions()
        names = ("parent_run_id", "lineage_id", "round_ordinal")
        copy = copied(value, kinds=(CreateOptions,), required=(), optional=names)
        if copy is None:
            self.refuse("options", "must be an inert data record")
        parent, lineage, ordinal = (copy.get(name) for name in names)
        texts_last = all(text is None or is_durable(text) for text in (parent, lineage))
        paired = (lineage is None) == (ordinal is None)
        if not texts_last or not paired or not (ordinal is None or is_safe(ordinal)):
            self.refuse("options", "contains invalid ancestry or lineage")
        return CreateOptions(parent, lineage, ordinal)

    def to_status(self, value: object) -> RunStatus:
        """A status that a transition may have as its target."""
        status = _status(value)
        if status is None or status is RunStatus.PENDING:
            self.refuse("to_status", _BROKEN)
        return status

    def state(self, value: object, **about: object) -> str:
        """A JSON text, which is stored unchanged; ``about`` names the run in the error."""
        complaint = json.text_complaint(value)
        if complaint is not None or type(value) is not str:
            length = len(value) if type(value) is str else None
            detail = complaint or json.EMPTY_TEXT
            self.refuse("state_json", detail, **about, state_json_length=length, state_json_valid=False)
        return value

    def guard(self, value: object) -> TransitionGuard:
        """A condition on a transition, copied."""
        if value is None:
            return TransitionGuard()
        copy = copied(value, kinds=(TransitionGuard,), required=(), optional=("cancel_requested",))
        if copy is None:
            self.refuse("guard", "must be an inert exact guard")
        given: object = copy.get("cancel_requested")
        if given is None:
            return TransitionGuard()
        wanted = _CANCEL_STATES.get(given) if type(given) is str else None
        if wanted is None:
            self.refuse("guard.cancel_requested", "must be an inert exact guard")
        return TransitionGuard(wanted)


def _status(value: object) -> RunStatus | None:
    if type(value) is RunStatus:
        return value
    if type(value) is not str:
        return None
    return next((status for status in RunStatus if status.value == value), None)


def evidence_matches(expected_owner: OwnerId, observer: OwnerId, now_ms: Millis, evidence: LivenessEvidence) -> bool:
    """Whether evidence is about this owner, gathered at exactly this time, and of a kind the observer can have."""
    if evidence.expected_owner != expected_owner or evidence.checked_at_ms != now_ms:
        return False
    if evidence.kind == "lease-expired":
        return True
    # An unknown kind proves nothing.
    wanted = "same-host-pid-dead" if expected_owner.host_id == observer.host_id else "cross-host-unreachable-stale"
    return evidence.kind == wanted
