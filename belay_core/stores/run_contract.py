"""RunStore: the runs and their fenced ownership (specs, run store 6), put together from roles."""

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
"""The answers of ``RunStore.request_cancel``, ``RunStore.request_cancel_lineage`` and ``RunStore.cancel``."""


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


class RunContract(
    RunReads, Creation, Lineages, Cancellation, Claims, TwoPhaseClaims, Ownership, Reconfirmation, Protocol
):
    """Every operation is one write: it happens wholly, or not at all."""


COMPANION_PREFIX: Final = "flows.companion/"
"""Ids that begin so are refused."""
_KINDS: Final[dict[str, EvidenceKind]] = {kind: kind for kind in get_args(EvidenceKind)}
_CANCEL_STATES: Final[dict[str, Literal["absent", "present"]]] = {"absent": "absent", "present": "present"}

_DURABLE: Final = "must be well-formed durable text"
_RESERVED: Final = "names a reserved journal companion stream"
_SAFE: Final = "must be a non-negative safe integer"
_AHEAD: Final = "runs ahead of the store clock by more than the heartbeat skew allowance"
_BROKEN: Final = "violates the durable contract"


@dataclass(frozen=True, slots=True)
class RunInput:
    """Checks of one RunStore call; ``method`` stands in its errors, which are of the class ``error``."""

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
        """A run id that may be given to a new run."""
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
        """A moment in milliseconds that decides no lease."""
        if not is_safe(value):
            self.refuse(field, _SAFE)
        return value

    def lease_reading(self, value: object, clock: Clock, run_id: RunId, **about: object) -> Millis:
        """A reading in milliseconds that decides a lease: whole, and not too far ahead of the store's clock.

        ``about`` tells the error more of what the reading was for.
        """
        if not is_safe(value):
            self.refuse("now_ms", _SAFE)
        clock_ms = reading(clock)
        if runs_ahead(value, clock_ms):
            self.refuse("now_ms", _AHEAD, run_id=run_id, **about, now_ms=value, clock_ms=clock_ms)
        return value

    def snapshot(self, value: object) -> RunSnapshot:
        """What the caller read of a run; a whole ``RunRow`` will do."""
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
        """The proof that an owner is gone, copied; whether it fits is not judged here."""
        return None if value is None else self.proof(value)

    def proof(self, value: object) -> LivenessEvidence:
        """Evidence, where an operation cannot do without."""
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
        """A status a run can be moved to."""
        status = _status(value)
        if status is None or status is RunStatus.PENDING:
            self.refuse("to_status", _BROKEN)
        return status

    def state(self, value: object, **about: object) -> str:
        """A JSON text, which is kept to the byte; ``about`` names the run in the error."""
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
    """Whether evidence is about this owner, gathered at exactly this moment, and of a kind the observer can have."""
    if evidence.expected_owner != expected_owner or evidence.checked_at_ms != now_ms:
        return False
    if evidence.kind == "lease-expired":
        return True
    # A kind that nobody has defined proves nothing, whoever observes.
    wanted = "same-host-pid-dead" if expected_owner.host_id == observer.host_id else "cross-host-unreachable-stale"
    return evidence.kind == wanted
