"""Request the cancel of rounds and lineages."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Executable, Row, Update, bindparam, case, func, select, update

from belay_core.clock import Millis
from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import JsonValue
from belay_core.records.owner import OwnerId
from belay_core.records.run import TERMINAL, RunStatus
from belay_core.stores.run_contract import (
    AlreadyRequested,
    CancelRequested,
    NotFound,
    RequestCancelOutcome,
    RunInput,
    Terminal,
)
from belay_core.values import json
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import OVER, lock, written
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.pending_signal import MARKED
from belay_drivers.sql.statements.run_rows import Noted, note_at, note_each
from belay_drivers.sql.stores.runs.base import RunRole
from belay_drivers.sql.stores.runs.lineages import IN_ORDER, MEMBER
from belay_drivers.sql.stores.runs.owned import OWNED_BY, owned_by_parameters

_ROUNDS_MISSED: Final = 5
"""How often a write may miss a round that a read then finds live and without a request."""

_REQUESTED: Final = "cancel_requested"


def _requesting(which: ColumnElement[bool]) -> Update:
    return (
        update(runs)
        .where(which, runs.c.cancel_requested_at.is_(None), runs.c.status.not_in(OVER))
        .values(
            cancel_requested_at=bindparam("b_at"),
            # A worker has to be notified; a run without a workflow has none.
            ready_at=case((runs.c.workflow.is_not(None), MARKED), else_=runs.c.ready_at),
            last_entry=runs.c.last_entry + 1,
        )
        .returning(runs.c.run_id, runs.c.last_entry)
    )


def _reading(which: ColumnElement[bool]) -> Executable:
    return select(runs.c.status, runs.c.cancel_requested_at).where(which).order_by(*IN_ORDER)


_ONE: Final = runs.c.run_id == bindparam("b_run")
_REQUEST: Final = _requesting(_ONE), _reading(_ONE)
_REQUEST_LINEAGE: Final = _requesting(MEMBER), _reading(MEMBER)
_ACKNOWLEDGE: Final = (
    update(runs)
    .where(OWNED_BY, runs.c.cancel_requested_at.is_not(None))
    .values(
        cancel_acknowledgement=func.coalesce(runs.c.cancel_acknowledgement, bindparam("b_words")),
        last_entry=runs.c.last_entry + case((runs.c.cancel_acknowledgement.is_(None), 1), else_=0),
    )
    .returning(*runs.c)
)


class RequestCancel(RunRole):
    """``request_cancel``, ``request_cancel_lineage`` and ``acknowledge_cancel``."""

    async def request_cancel(self, run_id: RunId, now_ms: Millis) -> RequestCancelOutcome:
        """Request the cancel of one round; the first request is kept (6.4)."""
        return await self._request("request_cancel", run_id, now_ms, _REQUEST)

    async def request_cancel_lineage(self, run_id: RunId, now_ms: Millis) -> RequestCancelOutcome:
        """Request the cancel of every live round of the lineage, all or none (6.5)."""
        return await self._request("request_cancel_lineage", run_id, now_ms, _REQUEST_LINEAGE)

    async def acknowledge_cancel(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> bool:
        """Store that the owner saw the request; the first record is kept (6.6)."""
        given = RunInput("acknowledge_cancel")
        run_id = given.run_id(run_id)
        owner = given.owner(owner)
        now_ms = given.moment(now_ms, "now_ms")
        seen_by: dict[str, JsonValue] = {"host_id": owner.host_id, "pid": owner.pid, "nonce": owner.nonce}
        words = json.encode({"observed_at_ms": now_ms, "owner": seen_by})
        bound = {**owned_by_parameters(run_id, owner), "b_words": words}
        work = self._database.write(partial(_acknowledged, bound=bound, now_ms=self._now()))
        return await self._guard("acknowledge_cancel", work, run_id)

    async def _request(
        self, method: str, run_id: RunId, now_ms: Millis, statements: tuple[Update, Executable]
    ) -> RequestCancelOutcome:
        given = RunInput(method)
        run_id = given.run_id(run_id)
        now_ms = given.moment(now_ms, "now_ms")
        request = _RoundsRequest(method, run_id, now_ms, self._now(), statements)
        return await self._guard(method, self._database.write(request, request.again), run_id)


def _acknowledged(tx: Connection, bound: dict[str, Any], now_ms: Millis) -> bool:
    before = lock(tx, bound["b_run"], now_ms)
    row = tx.execute(_ACKNOWLEDGE, bound).mappings().one_or_none()
    if before is None or row is None:
        return undone(tx, value=False)
    if before.row["cancel_acknowledgement"] is None:
        note_at(tx, before, row["last_entry"], "cancel_acknowledged", {})
    return True


class _RoundsRequest:
    """One request to one round or to a lineage."""

    def __init__(
        self, method: str, run_id: RunId, at: Millis, now_ms: Millis, statements: tuple[Update, Executable]
    ) -> None:
        self._method = method
        self._run_id = run_id
        self._at = at
        self._now = now_ms
        self._mark, self._read = statements
        self._sent: Noted | None = None

    def __call__(self, tx: Connection) -> RequestCancelOutcome:
        """Mark live rounds, until a read finds none that the write missed."""
        bound = {"b_run": key_of(self._run_id), "b_at": self._at, "b_now": self._now}
        marked: Noted | None = None
        for _ in range(_ROUNDS_MISSED):
            rows = tx.execute(self._mark, bound).mappings().all()
            if rows:
                note_each(tx, [written(row["run_id"], self._now, row) for row in rows], _REQUESTED, "{}")
                first = rows[0]
                marked = Noted(first["run_id"], first["last_entry"], self._now, _REQUESTED, "{}")
            answer = self._folded(tx.execute(self._read, {"b_run": bound["b_run"]}).all())
            if answer is not None:
                self._sent = marked
                return undone(tx, answer) if marked is None else CancelRequested(self._at)
        cause = {"run_id": self._run_id, "stage": "write-invariant"}
        detail = "guarded cancellation update missed a live unrequested row"
        raise RunStoreError("persistence_failed", self._method, detail, cause)

    def again(self, tx: Connection) -> RequestCancelOutcome:
        """Request once more after a lost reply; the journal shows whether the first try was committed."""
        if self._sent is not None:
            # Waits for an earlier try that may be about to commit; it marks all its rounds in one transaction.
            lock(tx, self._sent.run_key, self._now)
            if self._sent.is_stored(tx):
                return undone(tx, CancelRequested(self._at))
        return self(tx)

    def _folded(self, rows: Sequence[Row[Any]]) -> RequestCancelOutcome | None:
        """The outcome of all rounds, in their order; None if one is live and without a request."""
        answer: RequestCancelOutcome = NotFound()
        for row in rows:
            status, requested_at = row.status, row.cancel_requested_at
            if status not in set(RunStatus):
                cause: dict[str, object] = {"run_id": self._run_id, "stage": "row-schema"}
                raise RunStoreError("decode_failed", self._method, f"could not decode {runs.name} row", cause)
            if RunStatus(status) in TERMINAL:
                answer = answer if isinstance(answer, AlreadyRequested) else Terminal(RunStatus(status))
            elif requested_at is None:
                return None
            else:
                answer = AlreadyRequested(requested_at)
        return answer
