"""Letting a run go: parked, or at its end."""

from typing import Any, Final

from sqlalchemy import Connection, bindparam, not_, or_, select, update

from belay_core import commands
from belay_core.outcomes import engine as outcomes
from belay_core.records.run import RunStatus
from belay_drivers.sql.bulk import Parking, Plain, Settling
from belay_drivers.sql.children import note_last, withdraw_open
from belay_drivers.sql.database import undone
from belay_drivers.sql.engine_store.base import MISSED, Missed, OwnedRole, Shared, Sharing
from belay_drivers.sql.fences import NOT_WAITING, OWNED, UNCLAIMED, UNOWNED, Fence, Held, owned_update
from belay_drivers.sql.keys import key_of
from belay_drivers.sql.news import UNSEEN, earlier_ready
from belay_drivers.sql.tables import runs, values

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


class Ending(OwnedRole):
    """``park`` and ``settle``; both end the lease."""

    async def park(self, command: commands.Park) -> outcomes.ParkOutcome:
        """Suspend the run."""
        return await self._guard("park", self._park(command))

    async def settle(self, command: commands.Settle) -> outcomes.SettleOutcome:
        """End the run."""
        return await self._guard("settle", self._settle(command))

    async def _park(self, command: commands.Park) -> outcomes.ParkOutcome:
        def suspend(tx: Connection, fence: Fence) -> outcomes.ParkOutcome | Missed:
            held = _parked(tx, fence, command)
            if held is None:
                return _refused(tx, fence)
            _store_values(tx, held, {"waiting_request": command.request})
            waiting = command.waiting
            facts = {"reason": waiting.reason, "token": waiting.token, "wake_at_ms": waiting.wake_at_ms}
            note_last(tx, held, command.notes, "suspended", {**facts})
            return outcomes.Parked()

        ended: outcomes.ParkOutcome = await self._owned(
            command.lease, suspend, recall=lambda _tx: outcomes.Parked(), shared=_parking(command)
        )
        if isinstance(ended, outcomes.Parked):
            self._parts.sequences.forget(command.lease)
            self._parts.wakes.poke(command.lease.run_id, ready=command.ready_at_ms is not None)
        return ended

    async def _settle(self, command: commands.Settle) -> outcomes.SettleOutcome:
        def end(tx: Connection, fence: Fence) -> outcomes.SettleOutcome | Missed:
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
            return outcomes.Settled(held.now_ms)

        def ended_at(tx: Connection) -> outcomes.SettleOutcome:
            return outcomes.Settled(tx.execute(_FINISHED, {"b_run": key_of(command.lease.run_id)}).scalar_one())

        ended: outcomes.SettleOutcome = await self._owned(
            command.lease, end, recall=ended_at, shared=_settling(command)
        )
        if isinstance(ended, outcomes.Settled):
            self._parts.sequences.forget(command.lease)
            self._parts.wakes.poke(command.lease.run_id)
        return ended


def _parking(command: commands.Park) -> Sharing[outcomes.ParkOutcome] | None:
    """The command as one that shares a commit, unless its owner has notes to leave."""
    if command.notes:
        return None

    def answer(_plain: Plain, _fence: Fence) -> outcomes.ParkOutcome:
        return outcomes.Parked()

    return Shared(lambda fence: Parking(fence, command), answer)


def _settling(command: commands.Settle) -> Sharing[outcomes.SettleOutcome] | None:
    """The command as one that shares a commit, unless its owner has notes to leave."""
    if command.notes:
        return None

    def answer(_plain: Plain, fence: Fence) -> outcomes.SettleOutcome:
        return outcomes.Settled(fence.now_ms)

    return Shared(lambda fence: Settling(fence, command), answer)


def _parked(tx: Connection, fence: Fence, command: commands.Park) -> Held | None:
    waiting = command.waiting
    bound: dict[str, Any] = {"b_reason": waiting.reason, "b_token": waiting.token, "b_wake": waiting.wake_at_ms}
    bound["b_entries"] = len(command.notes) + 1
    if command.ready_at_ms is None:
        return fence.held(tx, _PARK, **bound, b_seen=command.seen_ms)
    return fence.held(tx, _PARK_READY, **bound, b_ready=command.ready_at_ms)


def _refused(tx: Connection, fence: Fence) -> outcomes.News | Missed:
    """Whether the fence or the news refused; only its owner can take the news off a run, so reading is enough."""
    bound = fence.parameters()
    del bound["b_now"]
    owned = tx.execute(_STILL_OWNED, bound).one_or_none()
    return undone(tx, MISSED if owned is None else outcomes.News())


def _store_values(tx: Connection, held: Held, changes: dict[str, str | None]) -> None:
    tx.execute(update(values).where(values.c.run_id == held.key).values(**changes))
