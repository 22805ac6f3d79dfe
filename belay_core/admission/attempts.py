"""What AttemptStore lets in, operation by operation (specs, run store 7); these errors have no cause."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NoReturn

from belay_core import limits
from belay_core.admission import json
from belay_core.admission.numbers import is_safe
from belay_core.admission.records import Copy, copied, owner_fields, owner_of
from belay_core.admission.text import is_durable
from belay_core.errors import AttemptStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import ABSENT, Attempt, AttemptId, FinishAttempt
from belay_core.records.owner import OwnerId

IN_PROGRESS: Final = "running"
"""The state of an attempt that has not ended."""

_ID: Final = ("run_id", "step_key_digest", "attempt")
_ATTEMPT: Final = (*_ID, "state", "started_at_ms", "meta")
_ATTEMPT_MORE: Final = tuple(field.name for field in fields(Attempt) if field.name not in _ATTEMPT)
_FINISH: Final = (*_ID, "state", "finished_at_ms")
_FINISH_MORE: Final = ("error", "outcome", "meta")


@dataclass(frozen=True, slots=True)
class AttemptInput:
    """Checks of one AttemptStore call; ``method`` stands in its errors."""

    method: str

    def refuse(self, detail: str) -> NoReturn:
        """Raise ``invalid_attempt``."""
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
        """An attempt to be stored, copied; its JSON values are admitted but not copied."""
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
        self._checkpoint(copy, limits.DEFAULT_CHECKPOINT_BYTES)
        return Attempt(**copy)

    def attempt_id(self, value: object) -> AttemptId:
        """What names an attempt; a whole ``Attempt`` will do."""
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
        if copy["state"] == IN_PROGRESS:
            self.refuse("finish requires a terminal state and valid timestamp")
        return FinishAttempt(**copy)

    def _values(self, copy: Copy, names: tuple[str, ...]) -> None:
        for name in names:
            value: Any = copy.get(name, ABSENT)
            if value is ABSENT:
                continue
            most = limits.MAXIMUM_CHECKPOINT_BYTES if name == "checkpoint" else None
            complaint = json.complaint(value, max_bytes=most)
            if complaint is not None:
                self.refuse(f"{name} {complaint}")

    def _checkpoint(self, copy: Mapping[str, Any], most: int) -> None:
        value = copy.get("checkpoint", ABSENT)
        if value is not ABSENT and json.complaint(value, max_bytes=most) is not None:
            self.refuse(f"checkpoint {json.TOO_LARGE}")


def _identifies(copy: Copy) -> bool:
    return is_durable(copy["run_id"]) and is_durable(copy["step_key_digest"]) and is_safe(copy["attempt"])
