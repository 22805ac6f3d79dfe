"""What WaitingStore lets in (specs, run store 9)."""

from dataclasses import dataclass

from belay_core import limits
from belay_core.admission import json
from belay_core.admission.numbers import is_safe
from belay_core.admission.records import copied
from belay_core.admission.runs import RunInput
from belay_core.admission.text import is_durable, is_name
from belay_core.errors import StoreError, WaitingStoreError
from belay_core.records.attempt import ABSENT
from belay_core.records.waiting import Wait


@dataclass(frozen=True, slots=True)
class WaitingInput(RunInput):
    """Checks of one WaitingStore call."""

    error: type[StoreError] = WaitingStoreError

    def wait(self, value: object) -> Wait:
        """A declaration, copied; its JSON value is admitted but not copied."""
        copy = copied(value, kinds=(Wait,), required=("reason",), optional=("wake_at_ms", "token", "request"))
        if copy is None:
            self.refuse("waiting", "must be an inert data record")
        wake, token, request = copy.get("wake_at_ms"), copy.get("token"), copy.get("request", ABSENT)
        reason = self.reason(copy["reason"], "waiting.reason")
        if wake is not None:
            self.moment(wake, "waiting.wake_at_ms")
        if token is not None and not is_durable(token):
            self.refuse("waiting.token", "must be well-formed durable text")
        if request is not ABSENT:
            complaint = json.complaint(request, max_bytes=limits.MAXIMUM_VALUE_BYTES)
            if complaint is not None:
                self.refuse("waiting.request", complaint)
        return Wait(reason, wake, token, request)

    def reason(self, value: object, field: str = "reason") -> str:
        """A reason; runs are looked up by it, so that it has to fit into an index."""
        if not is_name(value):
            self.refuse(field, "must be well-formed text without NUL, 1 to 512 bytes of UTF-8")
        return value

    def filters(self, reason: object, due_before_ms: object, cancel_requested: object) -> None:
        """Which waiting runs are asked for."""
        if reason is not None:
            self.reason(reason)
        if due_before_ms is not None and not is_safe(due_before_ms):
            self.refuse("due_before_ms", "must be a non-negative safe integer")
        if cancel_requested is not None and type(cancel_requested) is not bool:
            self.refuse("cancel_requested", "must be a boolean")
