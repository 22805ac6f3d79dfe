"""Release a run: park it, or settle it."""

from typing import Any, Final

from sqlalchemy import Connection, bindparam, not_, or_, select, update

from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.stores.runs import PendingSignal, RunParked, RunParkOutcome, Settled, SettleOutcome
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import runs, values
from belay_drivers.sql.statements.fences import NOT_WAITING, OWNED, UNCLAIMED, UNOWNED, Fence, Held, owned_update
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.pending_signal import UNSEEN, earlier_ready
from belay_drivers.sql.statements.run_rows import note_last, withdraw_open
from belay_drivers.sql.statements.write_ops import Applied, ParkOp, SettleOp
from belay_drivers.sql.stores.base import FENCE_REJECTED, FenceRejected, Groupable, OwnedRole, Shared

_GONE: Final[dict[str, Any]] = {**UNOWNED, **UNCLAIMED, "last_entry": runs.c.last_entry + bindparam("b_entries")}
_WAITING: Final[dict[str, Any]] = {
    "status": RunStatus.SUSPENDED.value,
    "waiting_reason": bindparam("b_reason"),
    "waiting_token": bindparam("b_token"),
    "waiting_wake_at": bindparam("b_wake"),
}
_PARK: Final = owned_update(not_(UNSEEN), **_GONE, **_WAITING, ready_at=None)
_PARK_READY: Final = owned_update(**_GONE, **_WAITING, ready_at=earlier_ready(bindparam("b_ready")))
_SETTLE: Final = owned_update(
    not_(UNSEEN),
    or_(bindparam("b_status") == RunStatus.CANCELLED.value, runs.c.cancel_requested_at.is_(None)),
    **_GONE,
    **NOT_WAITING,
    status=bindparam("b_status"),
    ready_at=None,
    finished_at=bindparam("b_now"),
)
_STILL_OWNED: Final = select(runs.c.run_id).where(OWNED, runs.c.write_seq == bindparam("b_seq"))
_FINISHED: Final = select(runs.c.finished_at).where(runs.c.run_id == bindparam("b_run"))


class ReleaseRuns(OwnedRole):
    """``park`` and ``settle``; both end the lease."""

    async def park(self, command: commands.Park) -> RunParkOutcome:
        """Suspend the run."""
        return await self._run_command("park", self._park(command))

    async def settle(self, command: commands.Settle) -> SettleOutcome:
        """End the run."""
        return await self._run_command("settle", self._settle(command))

    async def _park(self, command: commands.Park) -> RunParkOutcome:
        def suspend(tx: Connection, fence: Fence) -> RunParkOutcome | FenceRejected:
            held = _parked(tx, fence, command)
            if held is None:
                return _refused(tx, fence)
            _store_values(tx, held, {"waiting_request": command.request})
            waiting = command.waiting
            facts = {"reason": waiting.reason, "token": waiting.token, "wake_at_ms": waiting.wake_at_ms}
            note_last(tx, held, command.notes, "suspended", {**facts})
            return RunParked()

        ended: RunParkOutcome = await self._owned(
            command.lease, suspend, reread=lambda _tx: RunParked(), shared=_parking(command)
        )
        if isinstance(ended, RunParked):
            self._parts.sequences.forget(command.lease)
            self._parts.notifier.notify(command.lease.run_id, ready=command.ready_at_ms is not None)
        return ended

    async def _settle(self, command: commands.Settle) -> SettleOutcome:
        def end(tx: Connection, fence: Fence) -> SettleOutcome | FenceRejected:
            held = fence.held(
                tx,
                _SETTLE,
                b_status=command.status.value,
                b_seen=command.seen_ms,
                b_entries=len(command.notes) + 1,
            )
            if held is None:
                return _refused(tx, fence)
            _store_values(tx, held, {"result": command.result, "error": command.error})
            withdraw_open(tx, held)
            note_last(tx, held, command.notes, "settled", {"status": command.status.value})
            return Settled(held.now_ms)

        def ended_at(tx: Connection) -> SettleOutcome:
            return Settled(tx.execute(_FINISHED, {"b_run": key_of(command.lease.run_id)}).scalar_one())

        ended: SettleOutcome = await self._owned(command.lease, end, reread=ended_at, shared=_settling(command))
        if isinstance(ended, Settled):
            self._parts.sequences.forget(command.lease)
            self._parts.notifier.notify(command.lease.run_id)
        return ended


def _parking(command: commands.Park) -> Groupable[RunParkOutcome] | None:
    """The command as a write of a group commit, unless it has notes."""
    if command.notes:
        return None

    def answer(_plain: Applied, _fence: Fence) -> RunParkOutcome:
        return RunParked()

    return Shared(lambda fence: ParkOp(fence, command), answer)


def _settling(command: commands.Settle) -> Groupable[SettleOutcome] | None:
    """The command as a write of a group commit, unless it has notes."""
    if command.notes:
        return None

    def answer(_plain: Applied, fence: Fence) -> SettleOutcome:
        return Settled(fence.now_ms)

    return Shared(lambda fence: SettleOp(fence, command), answer)


def _parked(tx: Connection, fence: Fence, command: commands.Park) -> Held | None:
    waiting = command.waiting
    bound: dict[str, Any] = {"b_reason": waiting.reason, "b_token": waiting.token, "b_wake": waiting.wake_at_ms}
    bound["b_entries"] = len(command.notes) + 1
    if command.ready_at_ms is None:
        return fence.held(tx, _PARK, **bound, b_seen=command.seen_ms)
    return fence.held(tx, _PARK_READY, **bound, b_ready=command.ready_at_ms)


def _refused(tx: Connection, fence: Fence) -> PendingSignal | FenceRejected:
    """Whether the fence or a pending signal refused; only the owner clears a signal, so a read is enough."""
    bound = fence.parameters()
    del bound["b_now"]
    owned = tx.execute(_STILL_OWNED, bound).one_or_none()
    return undone(tx, FENCE_REJECTED if owned is None else PendingSignal())


def _store_values(tx: Connection, held: Held, changes: dict[str, str | None]) -> None:
    tx.execute(update(values).where(values.c.run_id == held.key).values(**changes))
