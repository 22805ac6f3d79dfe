"""The attempt store, watched."""

from typing_extensions import override

from belay_core.admission.numbers import is_safe
from belay_core.admission.text import is_durable
from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.outcomes.attempts import FinishResult, HeartbeatResult, PatchResult, PutResult
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
from belay_core.stores.attempt_store import AttemptStore
from belay_core.telemetry import names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Watch


class ObservedAttemptStore(AttemptStore):
    """An attempt store that does what the one it is given does, and leaves a span of it."""

    def __init__(self, attempts: AttemptStore, instruments: Instruments) -> None:
        self._attempts = attempts
        self._instruments = instruments

    @override
    async def put(self, attempt: Attempt, owner: OwnerId) -> PutResult:
        with Watch(self._instruments, names.ATTEMPT_PUT, lambda: _owned(attempt, owner)) as seen:
            return seen(await self._attempts.put(attempt, owner))

    @override
    async def get(self, attempt_id: AttemptId | Attempt) -> Attempt | None:
        with Watch(self._instruments, names.ATTEMPT_GET, lambda: _identity(attempt_id)):
            return await self._attempts.get(attempt_id)

    @override
    async def finish(self, finish: FinishAttempt, owner: OwnerId) -> FinishResult:
        with Watch(self._instruments, names.ATTEMPT_FINISH, lambda: _owned(finish, owner)) as seen:
            return seen(await self._attempts.finish(finish, owner))

    @override
    def make_with(self, options: AttemptStoreOptions) -> "ObservedAttemptStore":
        return ObservedAttemptStore(self._attempts.make_with(options), self._instruments)

    @override
    async def heartbeat(
        self,
        run_id: RunId,
        step_key_digest: str,
        attempt: int,
        owner: OwnerId,
        now_ms: Millis,
        checkpoint: "JsonValue | Absent" = ABSENT,
    ) -> HeartbeatResult:
        attempt_id = AttemptId(run_id, step_key_digest, attempt)
        with Watch(self._instruments, names.ATTEMPT_HEARTBEAT, lambda: _admitted(attempt_id, owner)) as seen:
            beat = self._attempts.heartbeat
            return seen(await beat(run_id, step_key_digest, attempt, owner, now_ms, checkpoint))

    @override
    async def patch(self, attempt_id: AttemptId | Attempt, patch: AttemptPatch, owner: OwnerId) -> PatchResult:
        with Watch(self._instruments, names.ATTEMPT_PATCH, lambda: _owned(attempt_id, owner)) as seen:
            return seen(await self._attempts.patch(attempt_id, patch, owner))


def _identity(attempt: AttemptId | Attempt | FinishAttempt) -> dict[str, str | int]:
    return {
        names.RUN_ID: attempt.run_id,
        names.STEP_KEY_DIGEST: attempt.step_key_digest,
        names.ATTEMPT: attempt.attempt,
    }


def _owned(attempt: AttemptId | Attempt | FinishAttempt, owner: OwnerId) -> dict[str, str | int]:
    return {**_identity(attempt), names.OWNER_HOST_ID: owner.host_id}


def _admitted(attempt: AttemptId, owner: OwnerId) -> dict[str, str | int]:
    """The same without ids that are none: a heartbeat is annotated before they are admitted (run store 12.2)."""
    given = _owned(attempt, owner)
    return {
        key: value for key, value in given.items() if (is_safe(value) if key == names.ATTEMPT else is_durable(value))
    }
