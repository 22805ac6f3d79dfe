"""What RunStore lets in, operation by operation; the first bad parameter wins (specs, run store 6 and 11)."""

from dataclasses import dataclass
from typing import Final, Literal, NoReturn, get_args

from belay_core.admission import json
from belay_core.admission.numbers import is_safe, runs_ahead
from belay_core.admission.records import copied, owner_fields, owner_of
from belay_core.admission.text import is_durable
from belay_core.errors import RunStoreError, StoreError
from belay_core.ids import RunId
from belay_core.moments import Clock, Millis, reading
from belay_core.records.owner import EvidenceKind, LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunRow, RunSnapshot, RunStatus, TransitionGuard

COMPANION_PREFIX: Final = "flows.companion/"
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
        """A moment that decides no lease."""
        if not is_safe(value):
            self.refuse(field, _SAFE)
        return value

    def lease_reading(self, value: object, clock: Clock, run_id: RunId, **about: object) -> Millis:
        """A reading that decides a lease: whole, and not too far ahead of the store's clock.

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
