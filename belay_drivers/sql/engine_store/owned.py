"""Keeping a lease and recording what was done under it."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, select

from belay_core import commands
from belay_core.errors import DatabaseError
from belay_core.outcomes import engine as outcomes
from belay_core.outcomes.attempts import Conflict, RunNotFound
from belay_core.outcomes.runs import FenceLost
from belay_core.records.owner import Lease
from belay_drivers.sql.bulk import Plain, Recording
from belay_drivers.sql.children import Children, all_stored
from belay_drivers.sql.database import ATTEMPTS, Done, Unknown, undone
from belay_drivers.sql.engine_store.base import MISSED, Missed, OwnedRole, Sharing, failed
from belay_drivers.sql.fences import Fence, Held
from belay_drivers.sql.keys import key_of
from belay_drivers.sql.rows import Undecodable
from belay_drivers.sql.tables import runs

_EXIST: Final = select(runs.c.run_id).where(runs.c.run_id.in_(bindparam("b_runs", expanding=True)))
_MARKS: Final = select(runs.c.ready_at, runs.c.cancel_requested_at).where(runs.c.run_id == bindparam("b_run"))


class Owning(OwnedRole):
    """``renew`` and ``record``."""

    async def renew(self, command: commands.Renew) -> tuple[outcomes.RenewOutcome, ...]:
        """Keep leases, in one statement; answers stand in the order of the leases."""
        return await self._guard("renew", self._renew(command)) if command.leases else ()

    async def record(self, command: commands.Record) -> outcomes.RecordOutcome:
        """Store attempts, all or none."""
        record = _Record(command, self._parts.children)
        # Spelled out and in one, as it happens most.
        try:
            ended = await self._owned(
                command.lease, record.store, recall=record.stored_already, shared=record.as_shared()
            )
            if record.was_undone and isinstance(ended, Conflict):
                # With what was stored of the others went the renewal that the lease has earned.
                kept: outcomes.RecordOutcome = await self._owned(command.lease, _keep)
                return ended if isinstance(kept, outcomes.Recorded) else kept
        except (DatabaseError, Undecodable) as failure:
            error = failed("record", failure)
        else:
            return ended
        raise error

    async def _renew(self, command: commands.Renew) -> tuple[outcomes.RenewOutcome, ...]:
        leases = tuple(dict.fromkeys(command.leases))
        answers = await self._renew_each(commands.Renew(leases))
        known = dict(zip(leases, answers, strict=True))
        return tuple(known[lease] for lease in command.leases)

    async def _renew_each(self, command: commands.Renew) -> Sequence[outcomes.RenewOutcome]:
        now_ms, hot = self._now(), self._parts.hot
        sent = await hot.renew(command, now_ms)
        for _ in range(ATTEMPTS):
            if isinstance(sent, Done):
                break
            # Renewing twice is renewing.
            sent = await hot.renew(command, now_ms)
        if isinstance(sent, Unknown):
            raise sent.failure.error()
        held = {row["place"]: row for row in sent.value}
        lost = [lease for place, lease in enumerate(command.leases) if place not in held]
        gone: dict[Lease, outcomes.RenewOutcome] = {}
        if lost:
            gone = await self._parts.database.read(lambda tx: _lost(tx, lost))
        return [
            outcomes.Renewed(held[place]["ready_at"], held[place]["cancel_requested_at"])
            if place in held
            else gone[lease]
            for place, lease in enumerate(command.leases)
        ]


class _Record(Sharing[outcomes.RecordOutcome]):
    """One record: with others in one commit, or in steps of its own."""

    __slots__ = ("_attempts", "_children", "_lease", "was_undone")

    def __init__(self, command: commands.Record, children: Children) -> None:
        self.was_undone = False
        """Whether the last of the steps met an attempt that stands in the way."""
        self._lease = command.lease
        self._attempts = command.attempts
        self._children = children

    def as_shared(self) -> Sharing[outcomes.RecordOutcome] | None:
        """As work that shares a commit; without attempts, or with one given twice, it goes in steps."""
        count = len(self._attempts)
        if count != 1 and (not count or len({(each.step_key, each.attempt) for each in self._attempts}) < count):
            return None
        return self

    def store(self, tx: Connection, fence: Fence) -> outcomes.RecordOutcome | Missed:
        """Store the attempts in steps."""
        held = fence.hold(tx, progress=True)
        if held is None:
            return undone(tx, MISSED)
        self.was_undone = not self._children.put_attempts(tx, held, fence.lease.epoch, self._attempts)
        return undone(tx, Conflict()) if self.was_undone else recorded(held)

    def stored_already(self, tx: Connection) -> outcomes.RecordOutcome:
        """The answer to a record that may have been made before."""
        run_key = key_of(self._lease.run_id)
        if not all_stored(tx, run_key, self._attempts):
            return Conflict()
        row = tx.execute(_MARKS, {"b_run": run_key}).one()
        return outcomes.Recorded(row.ready_at, row.cancel_requested_at)

    def work(self, fence: Fence) -> Recording:
        """The same under this fence."""
        return Recording(fence, self._attempts)

    def answer(self, plain: Plain, fence: Fence) -> outcomes.RecordOutcome:  # noqa: ARG002  (others need it)
        """What its plain answer means."""
        return outcomes.Recorded(plain.ready_at, plain.cancel_requested_at)


def _keep(tx: Connection, fence: Fence) -> outcomes.RecordOutcome | Missed:
    held = fence.hold(tx, progress=True)
    return undone(tx, MISSED) if held is None else recorded(held)


def recorded(held: Held) -> outcomes.Recorded:
    """The answer of an owned write that has been made."""
    return outcomes.Recorded(held.row["ready_at"], held.row["cancel_requested_at"])


def _lost(tx: Connection, leases: Sequence[Lease]) -> dict[Lease, outcomes.RenewOutcome]:
    keys = {lease: key_of(lease.run_id) for lease in leases}
    there = set(tx.execute(_EXIST, {"b_runs": sorted(set(keys.values()))}).scalars())
    return {lease: FenceLost() if key in there else RunNotFound() for lease, key in keys.items()}
