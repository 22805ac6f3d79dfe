"""Attempts in dictionaries."""

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

from typing_extensions import override

from belay_core.clock import Millis
from belay_core.ids import RunId
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
from belay_core.stores.attempts import (
    AttemptContract,
    AttemptInput,
    Conflict,
    ExistingSame,
    Finished,
    FinishResult,
    HeartbeatResult,
    Inserted,
    Patched,
    PatchResult,
    PutResult,
    RunNotFound,
    StateChanged,
    Upserted,
)
from belay_core.stores.run_contract import FenceLost, NotFound, Updated
from belay_core.values import json
from tests.drivers.dictionary_shelf import Shelf

_VALUES = ("checkpoint", "error", "outcome", "meta")


class DictionaryAttemptStore(AttemptContract):
    """Attempts on a shelf; what goes in and out is copied, so that nobody changes what is kept."""

    def __init__(self, shelf: Shelf, options: AttemptStoreOptions | None = None) -> None:
        self._shelf = shelf
        self._options = options or AttemptStoreOptions()

    @override
    def make_with(self, options: AttemptStoreOptions) -> "DictionaryAttemptStore":
        return DictionaryAttemptStore(self._shelf, AttemptInput("make_with").store_options(options))

    @override
    async def put(self, attempt: Attempt, owner: OwnerId) -> PutResult:
        given = AttemptInput("put", self._options)
        owner = given.owner(owner)
        new = deepcopy(given.attempt(attempt))
        if new.run_id not in self._shelf.runs:
            return RunNotFound()
        if self._shelf.owner_of(new.run_id) != owner:
            return FenceLost()
        found = self._found(new)
        if found is None:
            self._keep(new)
            return Inserted()
        if self._options.put_mode == "upsert" and self._is_open(found):
            self._keep(new)
            return Upserted()
        return ExistingSame() if _is_same(found, new) else Conflict()

    @override
    async def get(self, attempt_id: AttemptId | Attempt) -> Attempt | None:
        return deepcopy(self._found(AttemptInput("get").attempt_id(attempt_id)))

    @override
    async def finish(self, finish: FinishAttempt, owner: OwnerId) -> FinishResult:
        given = AttemptInput("finish", self._options)
        owner = given.owner(owner)
        end = given.finish(finish)
        found = self._found(end)
        if found is None:
            return NotFound()
        if self._shelf.owner_of(end.run_id) != owner:
            return FenceLost()
        if not self._is_open(found):
            return StateChanged()
        self._keep(replace(found, state=end.state, finished_at_ms=end.finished_at_ms, **_present(end)))
        return Finished()

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
        given = AttemptInput("heartbeat", self._options)
        owner = given.owner(owner)
        wanted = given.attempt_id({"run_id": run_id, "step_key_digest": step_key_digest, "attempt": attempt})
        now_ms, checkpoint = given.heartbeat(now_ms, checkpoint)
        found = self._found(wanted)
        if found is None:
            return NotFound()
        if self._shelf.owner_of(wanted.run_id) != owner:
            return FenceLost()
        if not self._is_open(found):
            return StateChanged()
        stamp = max(now_ms, found.heartbeat_at_ms or 0)
        self._keep(replace(found, heartbeat_at_ms=stamp, **_present(AttemptPatch(checkpoint=checkpoint))))
        return Updated()

    @override
    async def patch(self, attempt_id: AttemptId | Attempt, patch: AttemptPatch, owner: OwnerId) -> PatchResult:
        given = AttemptInput("patch", self._options)
        owner = given.owner(owner)
        wanted = given.attempt_id(attempt_id)
        values = _present(given.patch(patch))
        found = self._found(wanted)
        if found is None:
            return NotFound()
        if self._shelf.owner_of(wanted.run_id) != owner:
            return FenceLost()
        self._keep(replace(found, **values))
        return Patched()

    def _found(self, wanted: AttemptId | Attempt | FinishAttempt) -> Attempt | None:
        return self._shelf.attempts.get((wanted.run_id, wanted.step_key_digest, wanted.attempt))

    def _keep(self, attempt: Attempt) -> None:
        self._shelf.attempts[attempt.run_id, attempt.step_key_digest, attempt.attempt] = attempt

    def _is_open(self, attempt: Attempt) -> bool:
        return attempt.state in self._options.in_progress_states


def _present(given: FinishAttempt | AttemptPatch) -> dict[str, Any]:
    found = {name: getattr(given, name, ABSENT) for name in _VALUES}
    return {name: deepcopy(value) for name, value in found.items() if value is not ABSENT}


def _is_same(stored: Attempt, given: Attempt) -> bool:
    for name in (field.name for field in fields(Attempt)):
        one, other = getattr(stored, name), getattr(given, name)
        if name not in _VALUES or ABSENT in (one, other):
            if one != other:
                return False
        elif not json.same_json(one, other):
            return False
    return True
