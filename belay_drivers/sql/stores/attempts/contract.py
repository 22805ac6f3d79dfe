"""AttemptStore in SQL (specs, run store 7): every write under the lock of its run's row."""

from collections.abc import Awaitable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, bindparam, select

from belay_core import limits
from belay_core.clock import Millis
from belay_core.errors import AttemptStoreError, DatabaseError
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
from belay_core.values.numbers import is_safe
from belay_core.values.text import is_durable
from belay_drivers.sql.connection.database import Sender, undone
from belay_drivers.sql.connection.error_translation import code_of, translate_errors
from belay_drivers.sql.schema.tables import attempts
from belay_drivers.sql.statements.fences import lock
from belay_drivers.sql.statements.keys import full_text_of, key_of
from belay_drivers.sql.statements.rows import Columns, Undecodable
from belay_drivers.sql.statements.run_rows import change_attempt, insert_attempt
from belay_drivers.sql.stores.runs.base import is_owner

T = TypeVar("T")

_ATTEMPT: Final = select(attempts).where(
    attempts.c.run_id == bindparam("b_run"),
    attempts.c.step_key_digest == bindparam("b_digest"),
    attempts.c.attempt == bindparam("b_attempt"),
)
_VALUES: Final = ("checkpoint", "error", "outcome", "meta")


class SqlAttemptContract(AttemptContract):
    """Attempts, over one database."""

    def __init__(self, database: Sender, options: AttemptStoreOptions | None = None) -> None:
        self._database = database
        self._options = options or AttemptStoreOptions()

    def make_with(self, options: AttemptStoreOptions) -> "SqlAttemptContract":
        """The same attempts under other options (7)."""
        return SqlAttemptContract(self._database, self._checked(options))

    def _checked(self, options: AttemptStoreOptions) -> AttemptStoreOptions:
        return AttemptInput("make_with").store_options(options)

    async def put(self, attempt: Attempt, owner: OwnerId) -> PutResult:
        """Store an attempt (7.1); one that has ended never changes."""
        given = AttemptInput("put", self._options)
        owner = given.owner(owner)
        stored = given.attempt(attempt)
        row = _row_of(stored)

        sent: list[PutResult] = []

        def put(tx: Connection, *, again: bool = False) -> PutResult:
            held = lock(tx, row["run_id"], stored.started_at_ms)
            if held is None:
                return undone(tx, RunNotFound())
            if not is_owner(held.row, owner):
                return undone(tx, FenceLost())
            if insert_attempt(tx, held, self._database.dialect, {**row, "epoch": held.row["epoch"]}):
                sent[:] = [Inserted()]
                return sent[0]
            found = _found(tx, stored)
            if again and sent and _is_same(decoded(found, stored, "put"), stored):
                return undone(tx, sent[0])
            if self._may_replace(found):
                change_attempt(tx, held, row["step_key_digest"], stored.attempt, _replacing(row))
                sent[:] = [Upserted()]
                return sent[0]
            if not _is_same(decoded(found, stored, "put"), stored):
                return undone(tx, Conflict())
            return undone(tx, ExistingSame())

        return await self._guard("put", self._database.write(put, partial(put, again=True)))

    async def get(self, attempt_id: AttemptId | Attempt) -> Attempt | None:
        """The attempt as stored, or None (7.2)."""
        wanted = AttemptInput("get").attempt_id(attempt_id)
        row = await self._guard("get", self._database.read(lambda tx: _found(tx, wanted)))
        return None if row is None else decoded(row, wanted, "get")

    async def finish(self, finish: FinishAttempt, owner: OwnerId) -> FinishResult:
        """End an attempt in progress; the first end is kept (7.4)."""
        given = AttemptInput("finish", self._options)
        owner = given.owner(owner)
        end = given.finish(finish)
        changes = {"state": end.state, "finished_at": end.finished_at_ms, **_encoded(end)}

        def close(tx: Connection, *, again: bool = False) -> FinishResult:
            held = lock(tx, key_of(end.run_id), end.finished_at_ms)
            row = _found(tx, end)
            if row is None:
                return undone(tx, NotFound())
            if held is None or not is_owner(held.row, owner):
                return undone(tx, FenceLost())
            if row["state"] in self._options.in_progress_states:
                change_attempt(tx, held, row["step_key_digest"], end.attempt, changes)
                return Finished()
            ended_so = again and all(row[name] == value for name, value in changes.items())
            return undone(tx, Finished() if ended_so else StateChanged())

        return await self._guard("finish", self._database.write(close, partial(close, again=True)))

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
        given = AttemptInput("heartbeat", self._options)
        owner = given.owner(owner)
        wanted = given.attempt_id({"run_id": run_id, "step_key_digest": step_key_digest, "attempt": attempt})
        now_ms, checkpoint = given.heartbeat(now_ms, checkpoint)
        kept = {} if checkpoint is ABSENT else {"checkpoint": json.encode(checkpoint)}

        def beat(tx: Connection) -> HeartbeatResult:
            held, row = lock(tx, key_of(wanted.run_id), now_ms), _found(tx, wanted)
            if row is None:
                return undone(tx, NotFound())
            if held is None or not is_owner(held.row, owner):
                return undone(tx, FenceLost())
            if row["state"] not in self._options.in_progress_states:
                return undone(tx, StateChanged())
            stamp = max(now_ms, row["heartbeat_at"] or now_ms)
            change_attempt(tx, held, row["step_key_digest"], wanted.attempt, {"heartbeat_at": stamp, **kept})
            return Updated()

        # Idempotent.
        return await self._guard("heartbeat", self._database.write(beat))

    async def patch(self, attempt_id: AttemptId | Attempt, patch: AttemptPatch, owner: OwnerId) -> PatchResult:
        """Store values with an attempt, whatever its state, while its run is owned (7.5)."""
        given = AttemptInput("patch", self._options)
        owner = given.owner(owner)
        wanted = given.attempt_id(attempt_id)
        changes = _encoded(given.patch(patch))

        def store(tx: Connection) -> PatchResult:
            held, row = lock(tx, key_of(wanted.run_id), 0), _found(tx, wanted)
            if row is None:
                return undone(tx, NotFound())
            if held is None or not is_owner(held.row, owner):
                return undone(tx, FenceLost())
            if changes:
                change_attempt(tx, held, row["step_key_digest"], wanted.attempt, changes)
            return Patched()

        # Idempotent.
        return await self._guard("patch", self._database.write(store))

    def _may_replace(self, row: Columns | None) -> bool:
        upserts = self._options.put_mode == "upsert"
        return upserts and row is not None and row["state"] in self._options.in_progress_states

    async def _guard(self, method: str, work: Awaitable[T]) -> T:
        def fails(failure: DatabaseError | Undecodable) -> AttemptStoreError:
            if isinstance(failure, Undecodable):
                return AttemptStoreError("decode_failed", method, f"could not decode {failure.table} row")
            cause = {"category": failure.code, "reason": failure.code, "cause": failure}
            return AttemptStoreError(code_of(failure), method, "attempt persistence failed", cause)

        return await translate_errors(work, fails)


def _found(tx: Connection, wanted: AttemptId | Attempt | FinishAttempt) -> Columns | None:
    bound = {
        "b_run": key_of(wanted.run_id),
        "b_digest": key_of(wanted.step_key_digest),
        "b_attempt": wanted.attempt,
    }
    return tx.execute(_ATTEMPT, bound).mappings().one_or_none()


def _replacing(row: Mapping[str, Any]) -> dict[str, Any]:
    """The whole attempt as columns; absent values are cleared."""
    return {name: row.get(name) for name in ("state", "started_at", "finished_at", "heartbeat_at", *_VALUES)}


def _encoded(given: Attempt | FinishAttempt | AttemptPatch) -> dict[str, str]:
    found = {name: getattr(given, name, ABSENT) for name in _VALUES}
    return {name: json.encode(value) for name, value in found.items() if value is not ABSENT}


def _row_of(attempt: Attempt) -> dict[str, Any]:
    digest = key_of(attempt.step_key_digest)
    return {
        "run_id": key_of(attempt.run_id),
        "step_key_digest": digest,
        "full_key": full_text_of(attempt.step_key_digest, digest),
        "attempt": attempt.attempt,
        "state": attempt.state,
        "started_at": attempt.started_at_ms,
        "finished_at": attempt.finished_at_ms,
        "heartbeat_at": attempt.heartbeat_at_ms,
        **_encoded(attempt),
    }


def decoded(row: Columns | None, wanted: AttemptId | Attempt, method: str) -> Attempt:
    """A row as a record; raises ``decode_failed`` if no store wrote it."""
    moments = () if row is None else (row["finished_at"], row["heartbeat_at"])
    if (
        row is None
        or not is_durable(row["state"])
        or not is_safe(row["started_at"])
        or not all(moment is None or is_safe(moment) for moment in moments)
    ):
        raise AttemptStoreError("decode_failed", method, f"could not decode {attempts.name} row")
    return Attempt(
        run_id=RunId(wanted.run_id),
        step_key_digest=wanted.step_key_digest,
        attempt=row["attempt"],
        state=row["state"],
        started_at_ms=row["started_at"],
        finished_at_ms=row["finished_at"],
        heartbeat_at_ms=row["heartbeat_at"],
        **_decoded_values(row, method),
    )


def _decoded_values(row: Columns, method: str) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name in _VALUES:
        if row[name] is None:
            continue
        most = limits.MAXIMUM_CHECKPOINT_BYTES if name == "checkpoint" else None
        complaint = json.text_complaint(row[name], max_bytes=most)
        if complaint is not None:
            raise AttemptStoreError("decode_failed", method, f"{name} {complaint}")
        found[name] = json.decode(row[name])
    return found


def _is_same(stored: Attempt, given: Attempt) -> bool:
    for name in (field.name for field in fields(Attempt)):
        one, other = getattr(stored, name), getattr(given, name)
        if name not in _VALUES or one is ABSENT or other is ABSENT:
            if one is not other and one != other:
                return False
        elif not json.same_json(one, other):
            return False
    return True
