"""Runs: making and reading them, asking them to stop, and what only their owner may do."""

from typing import Any, Final

from typing_extensions import override

from belay_core.clock import Clock, Millis, reading
from belay_core.errors import DatabaseError, RunStoreError
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import CreateOptions, RunRow, RunStatus, TransitionGuard, is_terminal_run_status
from belay_core.stores import RunContract
from belay_core.stores import run_contract as outcomes
from belay_core.stores.run_contract import CancelRequested, FenceLost, NotFound, RunInput, Transitioned, Updated
from belay_jsonl.book import Book, for_runs
from belay_jsonl.claims import JsonlClaims
from belay_jsonl.tables import Tables, Transaction

_NOTHING_YET: Final = (
    *("started_at_ms", "finished_at_ms", "owner", "heartbeat_at_ms"),
    *("claim", "claimed_at_ms", "cancel_requested_at_ms"),
)


class JsonlRunStore(JsonlClaims, RunContract):
    """Runs in a file."""

    def __init__(self, book: Book, clock: Clock) -> None:
        self._book = book
        self._clock = clock

    @override
    async def create(self, run_id: RunId, state_json: str, options: CreateOptions | None = None) -> None:
        given = RunInput("create")
        run_id = given.new_run_id(run_id)
        options = given.options(options)
        where = {name: getattr(options, name) for name in ("parent_run_id", "lineage_id", "round_ordinal")}
        state = given.state(state_json, run_id=run_id, **where)
        now_ms = reading(self._clock)

        def decide(change: Transaction) -> None:
            if not _may_be_made(change.tables, run_id, options):
                cause = {"category": "constraint", "cause": DatabaseError("constraint")}
                raise RunStoreError("constraint", "create", "database operation failed", cause)
            columns = {**dict.fromkeys(_NOTHING_YET), **where, "created_at_ms": now_ms, "state_json": state}
            change.change_run(run_id, status=RunStatus.PENDING, **columns)

        await for_runs(self._book, "create", decide)

    @override
    async def get(self, run_id: RunId) -> RunRow:
        run_id = RunInput("get").run_id(run_id)
        return await for_runs(self._book, "get", lambda change: _found(change.tables, run_id, "get"))

    @override
    async def lineage(self, run_id: RunId) -> tuple[RunRow, ...]:
        run_id = RunInput("lineage").run_id(run_id)
        return await for_runs(self._book, "lineage", lambda change: _rounds(change.tables, run_id))

    @override
    async def latest_round(self, run_id: RunId) -> RunRow:
        run_id = RunInput("latest_round").run_id(run_id)

        def decide(change: Transaction) -> RunRow:
            named = _found(change.tables, run_id, "latest_round")
            numbered = [row for row in _rounds(change.tables, run_id) if row.round_ordinal is not None]
            return numbered[-1] if numbered else named

        return await for_runs(self._book, "latest_round", decide)

    @override
    async def request_cancel(self, run_id: RunId, now_ms: Millis) -> outcomes.RequestCancelOutcome:
        given = RunInput("request_cancel")
        run_id, now_ms = given.run_id(run_id), given.moment(now_ms, "now_ms")

        def decide(change: Transaction) -> outcomes.RequestCancelOutcome:
            row = change.tables.runs.get(run_id)
            return _request(change, () if row is None else (row,), now_ms)

        return await for_runs(self._book, "request_cancel", decide)

    @override
    async def request_cancel_lineage(self, run_id: RunId, now_ms: Millis) -> outcomes.RequestCancelOutcome:
        given = RunInput("request_cancel_lineage")
        run_id, now_ms = given.run_id(run_id), given.moment(now_ms, "now_ms")

        def decide(change: Transaction) -> outcomes.RequestCancelOutcome:
            return _request(change, _rounds(change.tables, run_id), now_ms)

        return await for_runs(self._book, "request_cancel_lineage", decide)

    @override
    async def acknowledge_cancel(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> bool:
        given = RunInput("acknowledge_cancel")
        run_id, owner = given.run_id(run_id), given.owner(owner)
        now_ms = given.moment(now_ms, "now_ms")

        def decide(change: Transaction) -> bool:
            row = change.tables.runs.get(run_id)
            if row is None or row.owner != owner or row.cancel_requested_at_ms is None:
                return False
            if run_id not in change.tables.acknowledged:
                change.acknowledge(run_id, owner, now_ms)
            return True

        return await for_runs(self._book, "acknowledge_cancel", decide)

    @override
    async def heartbeat(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> outcomes.HeartbeatOutcome:
        return await self._beat("heartbeat", run_id, owner, now_ms)

    @override
    async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> outcomes.HeartbeatOutcome:
        return await self._beat("reconfirm", run_id, owner, now_ms)

    async def _beat(self, method: str, run_id: RunId, owner: OwnerId, now_ms: Millis) -> outcomes.HeartbeatOutcome:
        given = RunInput(method)
        run_id, owner = given.run_id(run_id), given.owner(owner)
        now_ms = given.lease_reading(now_ms, self._clock, run_id)

        def decide(change: Transaction) -> outcomes.HeartbeatOutcome:
            row = change.tables.runs.get(run_id)
            if row is None:
                return NotFound()
            if row.owner != owner or (method == "reconfirm" and row.claim is not None):
                return FenceLost()
            change.change_run(run_id, heartbeat_at_ms=max(now_ms, row.heartbeat_at_ms or 0))
            return Updated()

        return await for_runs(self._book, method, decide)

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
        columns = _columns_at(status, reading(self._clock)) | ({} if state is None else {"state_json": state})

        def decide(change: Transaction) -> outcomes.TransitionOutcome:
            row = change.tables.runs.get(run_id)
            if row is None:
                return NotFound()
            if row.owner != owner:
                return FenceLost()
            if wanted is not None and (row.cancel_requested_at_ms is not None) is not (wanted == "present"):
                return outcomes.GuardFailed()
            change.change_run(run_id, **columns)
            return Transitioned()

        return await for_runs(self._book, "transition_owned", decide)


def _columns_at(status: RunStatus, now_ms: Millis) -> dict[str, Any]:
    """What a transition to this status sets, beside the state."""
    finished = {"finished_at_ms": now_ms if is_terminal_run_status(status) else None}
    if status is RunStatus.RUNNING:
        return finished
    return {**finished, "status": status, **dict.fromkeys(("owner", "heartbeat_at_ms", "claim", "claimed_at_ms"))}


def _may_be_made(tables: Tables, run_id: RunId, options: CreateOptions) -> bool:
    if run_id in tables.runs or (options.parent_run_id is not None and options.parent_run_id not in tables.runs):
        return False
    place = (options.lineage_id, options.round_ordinal)
    taken = {(row.lineage_id, row.round_ordinal) for row in tables.runs.values()}
    return options.lineage_id is None or place not in taken


def _found(tables: Tables, run_id: RunId, method: str) -> RunRow:
    row = tables.runs.get(run_id)
    if row is None:
        raise RunStoreError("not_found_row", method, f"run {run_id} was not found", {"run_id": run_id})
    return row


def _rounds(tables: Tables, run_id: RunId) -> tuple[RunRow, ...]:
    """The lineage of a run, in order: the rounds that name it, and a first one that was made without a name."""
    named = tables.runs.get(run_id)
    if named is None:
        return ()
    lineage = named.lineage_id or run_id
    rounds = [row for row in tables.runs.values() if (row.lineage_id or row.run_id) == lineage]
    return tuple(sorted(rounds, key=lambda row: (row.round_ordinal or 0, row.run_id)))


def _request(change: Transaction, rounds: tuple[RunRow, ...], now_ms: Millis) -> outcomes.RequestCancelOutcome:
    if not rounds:
        return NotFound()
    live = [row for row in rounds if not is_terminal_run_status(row.status)]
    unasked = [row for row in live if row.cancel_requested_at_ms is None]
    for row in unasked:
        change.change_run(row.run_id, cancel_requested_at_ms=now_ms)
    if unasked:
        return CancelRequested(now_ms)
    asked = [row.cancel_requested_at_ms for row in live if row.cancel_requested_at_ms is not None]
    return outcomes.AlreadyRequested(asked[-1]) if asked else outcomes.Terminal(rounds[-1].status)
