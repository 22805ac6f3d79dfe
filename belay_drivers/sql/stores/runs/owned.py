"""Operations of the owner of a run."""

import asyncio
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from sqlalchemy import Connection, and_, bindparam, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from belay_core.clock import Clock, Millis
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus, TransitionGuard, is_terminal_run_status
from belay_core.stores.run_contract import (
    FenceLost,
    GuardFailed,
    HeartbeatOutcome,
    NotFound,
    RunInput,
    Transitioned,
    TransitionOutcome,
    Updated,
)
from belay_core.values import json
from belay_drivers.sql.connection.database import Sender, undone
from belay_drivers.sql.schema.tables import runs, values
from belay_drivers.sql.statements.fences import UNCLAIMED, UNOWNED, Held, later, lock
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.statements.run_rows import Noted, note_at
from belay_drivers.sql.stores.runs.base import RunRole, is_owner, ownership_facts, row_of

OWNED_BY: Final = and_(
    runs.c.run_id == bindparam("b_run"),
    runs.c.status == RunStatus.RUNNING.value,
    runs.c.owner_host_id == bindparam("b_host"),
    runs.c.owner_pid == bindparam("b_pid"),
    runs.c.owner_nonce == bindparam("b_nonce"),
)
"""The run is running under exactly this owner, with any lease."""
_HEARTBEAT: Final = (
    update(runs)
    .where(OWNED_BY)
    .values(heartbeat_at=later(runs.c.heartbeat_at, bindparam("b_now")))
    .returning(runs.c.run_id)
)
_RECONFIRM: Final = _HEARTBEAT.where(runs.c.claim_nonce.is_(None))
_STATE: Final = select(values.c.state).where(values.c.run_id == bindparam("b_run"))
_RELEASED: Final = "ownership.released"


def owned_by_parameters(run_id: RunId, owner: OwnerId) -> dict[str, Any]:
    """The parameters of ``OWNED_BY``."""
    return {"b_run": key_of(run_id), "b_host": owner.host_id, "b_pid": owner.pid, "b_nonce": owner.nonce}


class OwnedTransitions(RunRole):
    """``heartbeat``, ``reconfirm`` and ``transition_owned``."""

    def __init__(self, database: Sender, clock: Clock) -> None:
        super().__init__(database, clock)
        # Transitions of one owner are serialized: after a lost reply the state shows whether one was committed, if no
        # other came in between.
        self._moving: WeakValueDictionary[tuple[str, OwnerId], asyncio.Lock] = WeakValueDictionary()

    async def heartbeat(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> HeartbeatOutcome:
        """Store a heartbeat (6.12)."""
        return await self._beat("heartbeat", run_id, owner, now_ms, _HEARTBEAT)

    async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> HeartbeatOutcome:
        """Store a heartbeat, unless the run is claimed (6.13)."""
        return await self._beat("reconfirm", run_id, owner, now_ms, _RECONFIRM)

    async def _beat(
        self, method: str, run_id: RunId, owner: OwnerId, now_ms: Millis, statement: ReturningUpdate[tuple[str]]
    ) -> HeartbeatOutcome:
        given = RunInput(method)
        run_id = given.run_id(run_id)
        owner = given.owner(owner)
        now_ms = given.lease_reading(now_ms, self._clock, run_id)
        bound = {**owned_by_parameters(run_id, owner), "b_now": now_ms}

        def beat(tx: Connection) -> HeartbeatOutcome:
            if tx.execute(statement, bound).one_or_none() is not None:
                return Updated()
            return undone(tx, NotFound() if row_of(tx, key_of(run_id)) is None else FenceLost())

        # Idempotent, so a lost reply needs no check.
        return await self._guard(method, self._database.write(beat), run_id)

    async def transition_owned(
        self,
        run_id: RunId,
        owner: OwnerId,
        to_status: RunStatus,
        state_json: str | None = None,
        guard: TransitionGuard | None = None,
    ) -> TransitionOutcome:
        """Change the status of the owned run; any status but ``running`` releases it (6.14)."""
        given = RunInput("transition_owned")
        run_id = given.run_id(run_id)
        owner = given.owner(owner)
        status = given.to_status(to_status)
        state = None if state_json is None else given.state(state_json, run_id=run_id)
        condition = given.guard(guard)
        move = _Transition(key_of(run_id), owner, status, state, condition, self._now())
        turn = self._moving.setdefault((run_id, owner), asyncio.Lock())
        async with turn:
            work = self._database.write(move, partial(move, again=True))
            return await self._guard("transition_owned", work, run_id)


class _Transition:
    """One transition; it keeps what it found, to detect after a lost reply that it was committed."""

    def __init__(
        self,
        run_key: str,
        owner: OwnerId,
        status: RunStatus,
        state: str | None,
        guard: TransitionGuard,
        now_ms: Millis,
    ) -> None:
        self._key = run_key
        self._owner = owner
        self._status = status
        self._state = state
        self._guard = guard
        self._now = now_ms
        self._sent: tuple[int, int, Noted] | None = None

    def __call__(self, tx: Connection, *, again: bool = False) -> TransitionOutcome:
        held = lock(tx, self._key, self._now)
        if held is None:
            return undone(tx, NotFound())
        if again and self._arrived(tx, held.row):
            return undone(tx, Transitioned())
        if not is_owner(held.row, self._owner):
            return undone(tx, FenceLost())
        if not self._passes(held.row):
            return undone(tx, GuardFailed())
        self._move(tx, held)
        return Transitioned()

    def _arrived(self, tx: Connection, row: Columns) -> bool:
        """Whether the try with the lost reply was committed; under the lock, so it has ended."""
        if self._sent is None:
            return False
        epoch, seq, noted = self._sent
        if row["epoch"] != epoch:
            # The run was acquired since; that is possible only after a suspension.
            return self._status is RunStatus.SUSPENDED and noted.is_stored(tx)
        if (row["write_seq"], row["status"]) != (seq + 1, self._status.value):
            return False
        return self._state is None or tx.execute(_STATE, {"b_run": self._key}).scalar_one() == self._state

    def _passes(self, row: Columns) -> bool:
        wanted = self._guard.cancel_requested
        present = row["cancel_requested_at"] is not None
        return wanted is None or present is (wanted == "present")

    def _move(self, tx: Connection, held: Held) -> None:
        entry: int = held.row["last_entry"] + 1
        facts = ownership_facts(self._owner, None)
        noted = Noted(self._key, entry, self._now, _RELEASED, json.encode(facts))
        self._sent = held.row["epoch"], held.row["write_seq"], noted
        # The same transaction has locked the row since it was read.
        tx.execute(
            update(runs).where(runs.c.run_id == bindparam("b_run")).values(**self._changes(held.row)),
            {"b_run": self._key},
        )
        if self._state is not None:
            tx.execute(update(values).where(values.c.run_id == self._key).values(state=self._state))
        if self._status is not RunStatus.RUNNING:
            note_at(tx, held, entry, _RELEASED, facts)
        elif self._state is not None:
            note_at(tx, held, held.row["last_entry"] + 1, "state_changed", {})

    def _changes(self, row: Columns) -> dict[str, Any]:
        changes: dict[str, Any] = {"write_seq": row["write_seq"] + 1, "finished_at": None}
        if self._status is RunStatus.RUNNING:
            return changes if self._state is None else {**changes, "last_entry": row["last_entry"] + 1}
        changes |= {"status": self._status.value, "last_entry": row["last_entry"] + 1, **UNOWNED, **UNCLAIMED}
        if is_terminal_run_status(self._status):
            changes |= {"finished_at": self._now, "ready_at": None}
        return changes
