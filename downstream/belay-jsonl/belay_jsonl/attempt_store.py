"""Attempts of steps; every write is fenced by the run's owner."""

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
from belay_core.stores import attempts as outcomes
from belay_core.stores.attempts import (
    AttemptContract,
    AttemptInput,
    Conflict,
    ExistingSame,
    Finished,
    Inserted,
    Patched,
    RunNotFound,
    StateChanged,
)
from belay_core.stores.run_contract import FenceLost, NotFound, Updated
from belay_core.values import json
from belay_jsonl.book import Book, for_attempts
from belay_jsonl.tables import VALUES, Columns, Transaction, attempt_of, columns_of, key_of, same, whole


class JsonlAttemptStore(AttemptContract):
    """Attempts in a file; their values are kept as text, so that nobody can change what is stored."""

    def __init__(self, book: Book, options: AttemptStoreOptions | None = None) -> None:
        self._book = book
        self._options = options or AttemptStoreOptions()

    @override
    def make_with(self, options: AttemptStoreOptions) -> "JsonlAttemptStore":
        return JsonlAttemptStore(self._book, AttemptInput("make_with").store_options(options))

    @override
    async def put(self, attempt: Attempt, owner: OwnerId) -> outcomes.PutResult:
        given = AttemptInput("put", self._options)
        owner, attempt = given.owner(owner), given.attempt(attempt)
        key, columns = key_of(attempt), whole(attempt)

        def decide(change: Transaction) -> outcomes.PutResult:
            if attempt.run_id not in change.tables.runs:
                return RunNotFound()
            if not change.tables.owns(owner, attempt.run_id):
                return FenceLost()
            stored = change.tables.attempts.get(key)
            if stored is not None and not self._replaces(stored):
                return ExistingSame() if same(stored, columns) else Conflict()
            change.change_attempt(key, columns)
            return Inserted() if stored is None else outcomes.Upserted()

        return await for_attempts(self._book, "put", decide)

    def _replaces(self, stored: Columns) -> bool:
        return self._options.put_mode == "upsert" and self._in_progress(stored)

    def _in_progress(self, stored: Columns) -> bool:
        return stored["state"] in self._options.in_progress_states

    @override
    async def get(self, attempt_id: AttemptId | Attempt) -> Attempt | None:
        named = AttemptInput("get", self._options).attempt_id(attempt_id)

        def decide(change: Transaction) -> Attempt | None:
            stored = change.tables.attempts.get(key_of(named))
            return None if stored is None else attempt_of(named, stored)

        return await for_attempts(self._book, "get", decide)

    @override
    async def finish(self, finish: FinishAttempt, owner: OwnerId) -> outcomes.FinishResult:
        given = AttemptInput("finish", self._options)
        owner, finish = given.owner(owner), given.finish(finish)
        key = key_of(finish)
        end = {"state": finish.state, "finished_at_ms": finish.finished_at_ms}
        columns = {**end, **columns_of(finish, ("error", "outcome", "meta"))}

        def decide(change: Transaction) -> outcomes.FinishResult:
            stored = change.tables.attempts.get(key)
            if stored is None:
                return NotFound()
            if not change.tables.owns(owner, finish.run_id):
                return FenceLost()
            if not self._in_progress(stored):
                return StateChanged()
            change.change_attempt(key, columns)
            return Finished()

        return await for_attempts(self._book, "finish", decide)

    @override
    async def heartbeat(
        self,
        run_id: RunId,
        step_key_digest: str,
        attempt: int,
        owner: OwnerId,
        now_ms: Millis,
        checkpoint: "JsonValue | Absent" = ABSENT,
    ) -> outcomes.HeartbeatResult:
        given = AttemptInput("heartbeat", self._options)
        owner, named = given.owner(owner), given.attempt_id(AttemptId(run_id, step_key_digest, attempt))
        now_ms, checkpoint = given.heartbeat(now_ms, checkpoint)
        text = {} if checkpoint is ABSENT else {"checkpoint": json.encode(checkpoint)}

        def decide(change: Transaction) -> outcomes.HeartbeatResult:
            stored = change.tables.attempts.get(key_of(named))
            if stored is None:
                return NotFound()
            if not change.tables.owns(owner, named.run_id):
                return FenceLost()
            if not self._in_progress(stored):
                return StateChanged()
            latest = max(now_ms, stored["heartbeat_at_ms"] or 0)
            change.change_attempt(key_of(named), {"heartbeat_at_ms": latest, **text})
            return Updated()

        return await for_attempts(self._book, "heartbeat", decide)

    @override
    async def patch(self, attempt_id: AttemptId | Attempt, patch: AttemptPatch, owner: OwnerId) -> outcomes.PatchResult:
        given = AttemptInput("patch", self._options)
        owner, named, patch = given.owner(owner), given.attempt_id(attempt_id), given.patch(patch)
        columns = columns_of(patch, VALUES)

        def decide(change: Transaction) -> outcomes.PatchResult:
            if key_of(named) not in change.tables.attempts:
                return NotFound()
            if not change.tables.owns(owner, named.run_id):
                return FenceLost()
            if columns:
                change.change_attempt(key_of(named), columns)
            return Patched()

        return await for_attempts(self._book, "patch", decide)
