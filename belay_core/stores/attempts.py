"""AttemptStore: one row per attempt of a step, every write fenced by the run's owner (specs, run store 7)."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, NoReturn, Protocol, TypeAlias

from belay_core import limits
from belay_core.clock import Millis
from belay_core.errors import AttemptStoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.attempt import (
    ABSENT,
    Absent,
    Attempt,
    AttemptId,
    AttemptPatch,
    AttemptStoreOptions,
    FinishAttempt,
    JsonValue,
)
from belay_core.records.owner import OwnerId
from belay_core.stores.checks import Copy, copied, owner_fields, owner_of
from belay_core.stores.run_contract import FenceLost, NotFound, Updated
from belay_core.values import json
from belay_core.values.numbers import is_safe
from belay_core.values.text import is_durable


@dataclass(frozen=True, slots=True)
class Inserted:
    """The attempt is stored."""


@dataclass(frozen=True, slots=True)
class Upserted:
    """An attempt in progress was replaced."""


@dataclass(frozen=True, slots=True)
class ExistingSame:
    """The same attempt was stored already."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another attempt is stored under this key; it is unchanged."""


@dataclass(frozen=True, slots=True)
class RunNotFound:
    """There is no such run."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The attempt has ended."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The attempt is no longer in progress; its first end is kept."""


@dataclass(frozen=True, slots=True)
class Patched:
    """The given values are stored; the others are unchanged."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Every attempt of the command is stored, and the lease still holds; the fields are those of ``Renewed``."""

    pending_signal_ms: Millis | None
    cancel_requested_at_ms: Millis | None


PutResult: TypeAlias = Inserted | Upserted | ExistingSame | Conflict | FenceLost | RunNotFound
"""The answers of ``AttemptStore.put``."""
FinishResult: TypeAlias = Finished | FenceLost | NotFound | StateChanged
"""The answers of ``AttemptStore.finish``."""
HeartbeatResult: TypeAlias = Updated | FenceLost | NotFound | StateChanged
"""The answers of ``AttemptStore.heartbeat``."""
PatchResult: TypeAlias = Patched | FenceLost | NotFound
"""The answers of ``AttemptStore.patch``."""
RecordOutcome: TypeAlias = Recorded | Conflict | FenceLost | RunNotFound
"""The answers of ``AttemptStore.record``."""
BeginOutcome: TypeAlias = Inserted | ExistingSame | Conflict | FenceLost | RunNotFound
"""The answers of ``AttemptStore.sleep`` and ``ApprovalStore.ask``."""


class AttemptContract(Protocol):
    """Attempts; defects raise ``AttemptStoreError``."""

    @abstractmethod
    def make_with(self, options: AttemptStoreOptions) -> "AttemptContract":
        """The same attempts under other options; raises ``invalid_attempt`` if one breaks its rule (7)."""

    @abstractmethod
    async def put(self, attempt: Attempt, owner: OwnerId) -> PutResult:
        """Store an attempt (7.1); one that has ended never changes."""

    @abstractmethod
    async def get(self, attempt_id: AttemptId | Attempt) -> Attempt | None:
        """The attempt as stored, or None (7.2)."""

    @abstractmethod
    async def finish(self, finish: FinishAttempt, owner: OwnerId) -> FinishResult:
        """End an attempt in progress; the first end is kept (7.4)."""

    @abstractmethod
    async def heartbeat(
        self,
        run_id: RunId,
        step_key_digest: str,
        attempt: int,
        owner: OwnerId,
        now_ms: Millis,
        checkpoint: "JsonValue | Absent" = ABSENT,
    ) -> HeartbeatResult:
        """Store a heartbeat of an attempt in progress, and a checkpoint if one is given (7.3)."""

    @abstractmethod
    async def patch(self, attempt_id: AttemptId | Attempt, patch: AttemptPatch, owner: OwnerId) -> PatchResult:
        """Store values with an attempt, whatever its state, while its run is owned (7.5)."""


class AttemptCommands(Protocol):
    """The engine's part of ``AttemptStore``; defects raise ``AttemptStoreError``."""

    @abstractmethod
    async def record(self, command: commands.Record) -> RecordOutcome:
        """Store attempts, all or none."""

    @abstractmethod
    async def sleep(self, command: commands.Sleep) -> BeginOutcome:
        """Begin a sleep."""

    @abstractmethod
    async def history(self, command: commands.History) -> tuple[commands.RunHistory, ...]:
        """Runs with their attempts and approvals, in the order asked for; unknown ones are left out."""


class AttemptStore(AttemptContract, AttemptCommands, Protocol):
    """Attempts: the contract's operations and the engine's; defects raise ``AttemptStoreError``."""

    @abstractmethod
    def make_with(self, options: AttemptStoreOptions) -> "AttemptStore":
        """The same attempts under other options; raises ``invalid_attempt`` if one breaks its rule (7)."""


_ID: Final = ("run_id", "step_key_digest", "attempt")
_ATTEMPT: Final = (*_ID, "state", "started_at_ms", "meta")
_ATTEMPT_MORE: Final = tuple(each.name for each in fields(Attempt) if each.name not in _ATTEMPT)
_FINISH: Final = (*_ID, "state", "finished_at_ms")
_FINISH_MORE: Final = ("error", "outcome", "meta")
_PATCH: Final = ("checkpoint", "error", "outcome", "meta")
_OPTIONS: Final = tuple(each.name for each in fields(AttemptStoreOptions))
_OPTION_DEFAULTS: Final = {name: getattr(AttemptStoreOptions(), name) for name in _OPTIONS}
_PUT_MODES: Final[dict[str, Literal["insert", "upsert"]]] = {"insert": "insert", "upsert": "upsert"}
_MOST_STATES: Final = 256
_MOST_STATE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class AttemptInput:
    """Checks of one AttemptStore call under its store's options; ``method`` is named in its errors."""

    method: str
    options: AttemptStoreOptions = field(default_factory=AttemptStoreOptions)

    def refuse(self, detail: str) -> NoReturn:
        """Raise ``AttemptStoreError`` (``invalid_attempt``)."""
        raise AttemptStoreError("invalid_attempt", self.method, detail)

    def owner(self, value: object) -> OwnerId:
        """An owner, copied."""
        copy = owner_fields(value)
        if copy is None:
            self.refuse("owner must be an inert owner record")
        owner = owner_of(copy)
        if owner is None:
            self.refuse("owner must be a valid owner identity")
        return owner

    def attempt(self, value: object) -> Attempt:
        """An attempt to be stored, copied; its JSON values are checked but not copied."""
        copy = copied(value, kinds=(Attempt,), required=_ATTEMPT, optional=_ATTEMPT_MORE)
        if copy is None:
            self.refuse("attempt must be an inert data record")
        self._values(copy, ("checkpoint", "error", "outcome", "meta"))
        moments = (copy.get("finished_at_ms"), copy.get("heartbeat_at_ms"))
        if not (
            _identifies(copy)
            and is_durable(copy["state"])
            and is_safe(copy["started_at_ms"])
            and all(moment is None or is_safe(moment) for moment in moments)
        ):
            self.refuse("attempt violates the persistence contract")
        self._checkpoint(copy)
        return Attempt(**copy)

    def attempt_id(self, value: object) -> AttemptId:
        """The id of an attempt; an ``Attempt`` is accepted as well."""
        copy = copied(value, kinds=(AttemptId, Attempt), required=_ID, open_ended=True)
        if copy is None:
            self.refuse("attempt id must be an inert data record")
        if not _identifies(copy):
            self.refuse("attempt identity violates the durable identifier contract")
        return AttemptId(RunId(copy["run_id"]), copy["step_key_digest"], copy["attempt"])

    def finish(self, value: object) -> FinishAttempt:
        """The end of an attempt, copied."""
        copy = copied(value, kinds=(FinishAttempt,), required=_FINISH, optional=_FINISH_MORE)
        if copy is None:
            self.refuse("finished attempt must be an inert data record")
        self._values(copy, _FINISH_MORE)
        if not (_identifies(copy) and is_durable(copy["state"]) and is_safe(copy["finished_at_ms"])):
            self.refuse("finished attempt violates the contract")
        if copy["state"] in self.options.in_progress_states:
            self.refuse("finish requires a terminal state and valid timestamp")
        return FinishAttempt(**copy)

    def patch(self, value: object) -> AttemptPatch:
        """Values to store with an attempt, copied."""
        copy = copied(value, kinds=(AttemptPatch,), required=(), optional=_PATCH)
        if copy is None:
            self.refuse("attempt patch must be an inert data record")
        self._values(copy, _PATCH)
        self._checkpoint(copy)
        return AttemptPatch(**copy)

    def heartbeat(self, now_ms: object, checkpoint: Any) -> tuple[Millis, Any]:
        """A heartbeat of an attempt, in milliseconds, and the checkpoint that may come with it."""
        if not is_safe(now_ms):
            self.refuse("now_ms must be a non-negative safe integer")
        copy = {"checkpoint": checkpoint}
        self._values(copy, ("checkpoint",))
        self._checkpoint(copy)
        return now_ms, checkpoint

    def store_options(self, value: object) -> AttemptStoreOptions:
        """The options of a store, copied; invalid ones are refused when the store is made."""
        copy = copied(value, kinds=(AttemptStoreOptions,), required=(), optional=_OPTIONS)
        if copy is None:
            self.refuse("attempt store options must be an inert data record")
        given = {**_OPTION_DEFAULTS, **copy}
        self._states(given["in_progress_states"])
        most = given["max_checkpoint_bytes"]
        if not is_safe(most) or not 1 <= most <= limits.MAXIMUM_CHECKPOINT_BYTES:
            self.refuse(f"max_checkpoint_bytes must be between 1 and {limits.MAXIMUM_CHECKPOINT_BYTES}")
        mode = _PUT_MODES.get(given["put_mode"]) if type(given["put_mode"]) is str else None
        if mode is None:
            self.refuse("put_mode must be insert or upsert")
        return AttemptStoreOptions(tuple(given["in_progress_states"]), most, mode)

    def _states(self, value: Any) -> None:
        if type(value) not in (list, tuple) or not all(type(each) is str for each in value):
            self.refuse("in_progress_states must be an inert string array")
        sizes = [len(each.encode("utf-8", "replace")) for each in value]
        if not 0 < len(value) <= _MOST_STATES or sum(sizes) > _MOST_STATE_BYTES:
            self.refuse("in_progress_states must be an inert string array")
        if len(set(value)) < len(value) or not all(is_durable(each) for each in value):
            self.refuse("in_progress_states must contain unique durable state names")

    def _values(self, copy: Copy, names: tuple[str, ...]) -> None:
        for name in names:
            value: Any = copy.get(name, ABSENT)
            if value is ABSENT:
                continue
            most = limits.MAXIMUM_CHECKPOINT_BYTES if name == "checkpoint" else None
            complaint = json.complaint(value, max_bytes=most)
            if complaint is not None:
                self.refuse(f"{name} {complaint}")

    def _checkpoint(self, copy: Mapping[str, Any]) -> None:
        value = copy.get("checkpoint", ABSENT)
        most = self.options.max_checkpoint_bytes
        if value is not ABSENT and json.complaint(value, max_bytes=most) is not None:
            self.refuse(f"checkpoint {json.TOO_LARGE}")


def _identifies(copy: Copy) -> bool:
    return is_durable(copy["run_id"]) and is_durable(copy["step_key_digest"]) and is_safe(copy["attempt"])
