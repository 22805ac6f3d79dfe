"""A driver without SQL: runs and attempts in dictionaries, from belay's protocols and admission alone.

Nothing here awaits anything, so every operation is one step of the event loop, and happens wholly or not at all.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from typing_extensions import override

from belay_core.clock import Clock, Millis, SystemClock, reading
from belay_core.errors import DatabaseError, RunStoreError
from belay_core.ids import IdSource, RunId, Uuid7Ids
from belay_core.records.owner import OwnerId
from belay_core.records.run import (
    CreateOptions,
    RunRow,
    RunStatus,
    TransitionGuard,
    is_terminal_run_status,
)
from belay_core.stores import RunContract, Stores
from belay_core.stores import run_contract as outcomes
from belay_core.stores.absent import contract_attempts, contract_runs
from belay_core.stores.run_contract import CancelRequested, FenceLost, NotFound, RunInput, Updated
from tests.drivers.dictionary_attempts import DictionaryAttemptStore
from tests.drivers.dictionary_claims import DictionaryClaims
from tests.drivers.dictionary_shelf import Shelf


@asynccontextmanager
async def open_dictionary(
    shelf: Shelf, *, clock: Clock | None = None, ids: IdSource | None = None
) -> AsyncGenerator[Stores]:
    """The contract's two stores over a shelf; there is no engine."""
    clock = clock or SystemClock()
    runs, attempts = DictionaryRunStore(shelf, clock), DictionaryAttemptStore(shelf)
    yield Stores(contract_runs(runs), contract_attempts(attempts), clock=clock, ids=ids or Uuid7Ids())


class DictionaryRunStore(DictionaryClaims, RunContract):
    """Runs in a dictionary; each change puts a new row in the place of the old one."""

    @override
    async def create(self, run_id: RunId, state_json: str, options: CreateOptions | None = None) -> None:
        given = RunInput("create")
        run_id = given.new_run_id(run_id)
        where = given.options(options)
        ancestry = (where.parent_run_id, where.lineage_id, where.round_ordinal)
        about = dict(zip(("parent_run_id", "lineage_id", "round_ordinal"), ancestry, strict=True))
        state = given.state(state_json, run_id=run_id, **about)
        taken = where.lineage_id is not None and any(
            (row.lineage_id, row.round_ordinal) == ancestry[1:] for row in self._shelf.runs.values()
        )
        # A run that names itself has its parent as soon as it is there, as a foreign key says too.
        orphaned = where.parent_run_id not in {None, run_id} and where.parent_run_id not in self._shelf.runs
        if run_id in self._shelf.runs or taken or orphaned:
            cause = {"category": "constraint", "cause": DatabaseError("constraint")}
            raise RunStoreError("constraint", "create", "database operation failed", cause)
        self._shelf.runs[run_id] = RunRow(
            run_id=run_id,
            status=RunStatus.PENDING,
            created_at_ms=reading(self._clock),
            started_at_ms=None,
            finished_at_ms=None,
            owner=None,
            heartbeat_at_ms=None,
            claim=None,
            claimed_at_ms=None,
            cancel_requested_at_ms=None,
            state_json=state,
            **cast("Any", about),
        )

    @override
    async def get(self, run_id: RunId) -> RunRow:
        return self._found(RunInput("get").run_id(run_id), "get")

    def _found(self, run_id: RunId, method: str) -> RunRow:
        if run_id not in self._shelf.runs:
            raise RunStoreError("not_found_row", method, f"run {run_id} was not found", {"run_id": run_id})
        return self._shelf.runs[run_id]

    @override
    async def lineage(self, run_id: RunId) -> tuple[RunRow, ...]:
        return self._rounds(RunInput("lineage").run_id(run_id))

    @override
    async def latest_round(self, run_id: RunId) -> RunRow:
        row = self._found(RunInput("latest_round").run_id(run_id), "latest_round")
        numbered = [each for each in self._rounds(run_id) if each.round_ordinal is not None]
        return numbered[-1] if numbered else row

    def _rounds(self, run_id: RunId) -> tuple[RunRow, ...]:
        row = self._shelf.runs.get(run_id)
        if row is None:
            return ()
        name = row.lineage_id or row.run_id
        rounds = [
            each
            for each in self._shelf.runs.values()
            if each.lineage_id == name or (each.run_id == name and each.lineage_id is None)
        ]
        return tuple(sorted(rounds, key=lambda each: (each.round_ordinal or 0, each.run_id)))

    @override
    async def request_cancel(self, run_id: RunId, now_ms: Millis) -> outcomes.RequestCancelOutcome:
        given = RunInput("request_cancel")
        run_id, now_ms = given.run_id(run_id), given.moment(now_ms, "now_ms")
        row = self._shelf.runs.get(run_id)
        return self._request(() if row is None else (row,), now_ms)

    @override
    async def request_cancel_lineage(self, run_id: RunId, now_ms: Millis) -> outcomes.RequestCancelOutcome:
        given = RunInput("request_cancel_lineage")
        run_id, now_ms = given.run_id(run_id), given.moment(now_ms, "now_ms")
        return self._request(self._rounds(run_id), now_ms)

    def _request(self, rounds: tuple[RunRow, ...], now_ms: Millis) -> outcomes.RequestCancelOutcome:
        live = [row for row in rounds if not is_terminal_run_status(row.status)]
        unrequested = [row for row in live if row.cancel_requested_at_ms is None]
        for row in unrequested:
            self._shelf.change(row, cancel_requested_at_ms=now_ms)
        if unrequested:
            return CancelRequested(now_ms)
        if live:
            return outcomes.AlreadyRequested(cast("int", live[-1].cancel_requested_at_ms))
        return outcomes.Terminal(rounds[-1].status) if rounds else NotFound()

    @override
    async def acknowledge_cancel(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> bool:
        given = RunInput("acknowledge_cancel")
        run_id, owner = given.run_id(run_id), given.owner(owner)
        now_ms = given.moment(now_ms, "now_ms")
        row = self._shelf.runs.get(run_id)
        if row is None or row.owner != owner or row.cancel_requested_at_ms is None:
            return False
        self._shelf.acknowledged.setdefault(run_id, (owner, now_ms))
        return True

    @override
    async def heartbeat(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> outcomes.HeartbeatOutcome:
        return self._beat("heartbeat", run_id, owner, now_ms)

    @override
    async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> outcomes.HeartbeatOutcome:
        return self._beat("reconfirm", run_id, owner, now_ms)

    def _beat(self, method: str, run_id: RunId, owner: OwnerId, now_ms: Millis) -> outcomes.HeartbeatOutcome:
        given = RunInput(method)
        run_id, owner = given.run_id(run_id), given.owner(owner)
        now_ms = given.lease_reading(now_ms, self._clock, run_id)
        row = self._shelf.runs.get(run_id)
        if row is None:
            return NotFound()
        if row.owner != owner or (method == "reconfirm" and row.claim is not None):
            return FenceLost()
        self._shelf.change(row, heartbeat_at_ms=max(now_ms, row.heartbeat_at_ms or 0))
        return Updated()

    @override
    async def transition_owned(
        self,
        run_id: RunId,
        owner: OwnerId,
        to_status: RunStatus,
        state_json: str | None = None,
        guard: TransitionGuard | None = None,
    ) -> outcomes.TransitionOutcome:
        given = RunInput("transition_owned")
        run_id, owner = given.run_id(run_id), given.owner(owner)
        status = given.to_status(to_status)
        state = None if state_json is None else given.state(state_json, run_id=run_id)
        wanted = given.guard(guard).cancel_requested
        row = self._shelf.runs.get(run_id)
        if row is None:
            return NotFound()
        if row.owner != owner:
            return FenceLost()
        if wanted is not None and (row.cancel_requested_at_ms is not None) is not (wanted == "present"):
            return outcomes.GuardFailed()
        changes: dict[str, Any] = {"finished_at_ms": None, "state_json": row.state_json if state is None else state}
        if status is not RunStatus.RUNNING:
            changes |= dict.fromkeys(("owner", "heartbeat_at_ms", "claim", "claimed_at_ms"))
            changes["status"] = status
        if is_terminal_run_status(status):
            changes["finished_at_ms"] = reading(self._clock)
        self._shelf.change(row, **changes)
        return outcomes.Transitioned()
