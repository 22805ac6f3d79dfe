"""WaitingStore in SQL (specs, run store 9)."""

from typing import Any, Final, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, bindparam, case, select

from belay_core.clock import Clock, Millis
from belay_core.errors import WaitingStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import ABSENT, Absent, JsonValue
from belay_core.records.owner import OwnerId
from belay_core.records.waiting import Wait, WaitingRow
from belay_core.stores.notifier import Notifier
from belay_core.stores.run_contract import NotFound
from belay_core.stores.waiting import NotWaiting, Parked, ParkOutcome, WaitingInput, WaitingStore, WakeOutcome, Woken
from belay_core.values import json
from belay_drivers.sql.connection.database import Sender
from belay_drivers.sql.schema.tables import runs, values
from belay_drivers.sql.statements.entry_write import Entry, EntryWrite
from belay_drivers.sql.statements.fences import NOT_WAITING, OVER
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.pending_signal import MARKED
from belay_drivers.sql.statements.rows import Columns, Undecodable, status_of
from belay_drivers.sql.stores.auxiliary_base import StoreRole
from belay_drivers.sql.stores.runs.base import is_owner

A = TypeVar("A")


def _value_column(column: Column[str]) -> ColumnElement[str]:
    """A column of the run's values, looked up run by run: without statistics a join would read them all."""
    return select(column).where(values.c.run_id == runs.c.run_id).scalar_subquery().label(column.name)


_WAITING: Final = select(runs, _value_column(values.c.full_id), _value_column(values.c.waiting_request)).where(
    runs.c.waiting_reason.is_not(None), runs.c.status.not_in(OVER)
)
_ONE: Final = _WAITING.where(runs.c.run_id == bindparam("b_run"))
_REQUEST: Final = select(values.c.waiting_request).where(values.c.run_id == bindparam("b_run"))
_IN_ORDER: Final = _WAITING.order_by(runs.c.waiting_wake_at.is_(None), runs.c.waiting_wake_at, runs.c.run_id)
# A worker has to be notified; a run without a workflow has none.
_READY: Final = case((runs.c.workflow.is_not(None), MARKED), else_=runs.c.ready_at)


class SqlWaitingStore(StoreRole, WaitingStore):
    """Waits of runs, over one database; ``notifier`` wakes the workers of this process."""

    error = WaitingStoreError

    def __init__(self, database: Sender, clock: Clock, notifier: Notifier | None = None) -> None:
        super().__init__(database, clock)
        self._notifier = notifier

    async def park(self, run_id: RunId, waiting: Wait, owner: OwnerId) -> ParkOutcome:
        """Store what the owned run waits for."""
        given = WaitingInput("park")
        run_id = given.run_id(run_id)
        wait = given.wait(waiting)
        owner = given.owner(owner)

        def judge(_tx: Connection, row: Columns | None) -> ParkOutcome | Entry[ParkOutcome]:
            if row is None or not is_owner(row, owner):
                return NotFound()
            parked = Parked(_row_of(run_id, row, wait))
            return _entry("parked", wait, parked, write_seq=row["write_seq"] + 1)

        write: EntryWrite[ParkOutcome] = EntryWrite(key_of(run_id), self._now(), judge)
        return await self._send("park", write)

    async def wake(self, run_id: RunId) -> WakeOutcome:
        """Clear the wait, for any caller."""
        run_id = WaitingInput("wake").run_id(run_id)
        now_ms = self._now()

        def judge(tx: Connection, row: Columns | None) -> WakeOutcome | Entry[WakeOutcome]:
            if row is None:
                return NotFound()
            if row["waiting_reason"] is None or row["status"] in OVER:
                return NotWaiting()
            request = tx.execute(_REQUEST, {"b_run": row["run_id"]}).scalar_one_or_none()
            woken = Woken(_row_of(run_id, row, _wait_of(row, request)))
            return Entry(
                "woken",
                "{}",
                lambda _number: woken,
                columns={**NOT_WAITING, "ready_at": _READY},
                bound={"b_now": now_ms},
                values={"waiting_request": None},
            )

        write: EntryWrite[WakeOutcome] = EntryWrite(key_of(run_id), now_ms, judge)
        ended = await self._send("wake", write)
        if isinstance(ended, Woken) and self._notifier is not None:
            self._notifier.notify(run_id, ready=True)
        return ended

    async def waiting(self, run_id: RunId) -> WaitingRow | None:
        """What the run waits for."""
        run_id = WaitingInput("waiting").run_id(run_id)

        def read(tx: Connection) -> WaitingRow | None:
            row = tx.execute(_ONE, {"b_run": key_of(run_id)}).mappings().one_or_none()
            return None if row is None else waiting_row(row)

        return await self._guard("waiting", self._database.read(read))

    async def waiting_runs(
        self,
        reason: str | None = None,
        due_before_ms: Millis | None = None,
        cancel_requested: bool | None = None,  # noqa: FBT001  the contract's signature
    ) -> tuple[WaitingRow, ...]:
        """Runs that wait and have not ended, by wake time and then id."""
        WaitingInput("waiting_runs").filters(reason, due_before_ms, cancel_requested)
        statement = _IN_ORDER
        if reason is not None:
            statement = statement.where(runs.c.waiting_reason == reason)
        if due_before_ms is not None:
            statement = statement.where(runs.c.waiting_wake_at <= due_before_ms)
        if cancel_requested is not None:
            asked = runs.c.cancel_requested_at
            statement = statement.where(asked.is_not(None) if cancel_requested else asked.is_(None))

        def read(tx: Connection) -> tuple[WaitingRow, ...]:
            return tuple(waiting_row(row) for row in tx.execute(statement).mappings().all())

        return await self._guard("waiting_runs", self._database.read(read))

    async def _send(self, method: str, write: EntryWrite[A]) -> A:
        return await self._guard(method, self._database.write(write, write.again))


def _entry(kind: str, wait: Wait, parked: Parked, **columns: Any) -> Entry[ParkOutcome]:
    facts: dict[str, JsonValue] = {"reason": wait.reason, "token": wait.token, "wake_at_ms": wait.wake_at_ms}
    return Entry(
        kind,
        json.encode(facts),
        lambda _number: parked,
        columns={
            **columns,
            "waiting_reason": wait.reason,
            "waiting_token": wait.token,
            "waiting_wake_at": wait.wake_at_ms,
        },
        values={"waiting_request": None if wait.request is ABSENT else json.encode(wait.request)},
    )


def waiting_row(row: Columns) -> WaitingRow:
    """A row of a run that waits, with its full id and its request, as a record."""
    return _row_of(RunId(row["full_id"] or row["run_id"]), row, _wait_of(row, row["waiting_request"]))


def _wait_of(row: Columns, request: str | None) -> Wait:
    return Wait(row["waiting_reason"], row["waiting_wake_at"], row["waiting_token"], _decoded(request))


def _row_of(run_id: RunId, row: Columns, wait: Wait) -> WaitingRow:
    return WaitingRow(
        run_id=run_id,
        status=status_of(row),
        reason=wait.reason,
        wake_at_ms=wait.wake_at_ms,
        token=wait.token,
        request=wait.request,
        cancel_requested_at_ms=row["cancel_requested_at"],
    )


def _decoded(request: str | None) -> "JsonValue | Absent":
    if request is None:
        return ABSENT
    try:
        return json.decode(request)
    except json.JsonRefused:
        pass
    # Raised here, so that the parser's error is not its context.
    raise Undecodable(values.name)
