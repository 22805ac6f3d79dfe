"""Recording attempts under a lease, and beginning the waits of sleeps and gates."""

from typing import Final

from sqlalchemy import Connection, bindparam, select

from belay_core.errors import DatabaseError
from belay_core.records import commands
from belay_core.records.step_record import StepRecord
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.stores.attempts import BeginOutcome, Conflict, ExistingSame, Inserted, Recorded, RecordOutcome
from belay_drivers.sql.connection.database import undone
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import Fence, Held
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Undecodable
from belay_drivers.sql.statements.run_rows import AttemptRows, all_stored
from belay_drivers.sql.statements.write_ops import Applied, RecordOp, WaitOp
from belay_drivers.sql.stores.base import FENCE_REJECTED, FenceRejected, Groupable, OwnedRole, Shared

_EXIST: Final = select(runs.c.run_id).where(runs.c.run_id.in_(bindparam("b_runs", expanding=True)))
_MARKS: Final = select(runs.c.ready_at, runs.c.cancel_requested_at).where(runs.c.run_id == bindparam("b_run"))


class RecordAttempts(OwnedRole):
    """``record`` and ``sleep``."""

    async def record(self, command: commands.Record) -> RecordOutcome:
        """Store attempts, all or none."""
        record = _Record(command, self._parts.children)
        # Spelled out and in one, as it happens most.
        try:
            ended = await self._owned(
                command.lease, record.store, reread=record.stored_already, shared=record.as_shared()
            )
            if record.was_undone and isinstance(ended, Conflict):
                # With what was stored of the others went the renewal that the lease has earned.
                kept: RecordOutcome = await self._owned(command.lease, _keep)
                return ended if isinstance(kept, Recorded) else kept
        except (DatabaseError, Undecodable) as failure:
            error = self._failed("record", failure)
        else:
            return ended
        raise error

    async def sleep(self, command: commands.Sleep) -> BeginOutcome:
        """Begin a sleep."""

        def begin(tx: Connection, fence: Fence) -> BeginOutcome | FenceRejected:
            held = fence.hold(tx)
            if held is None:
                return undone(tx, FENCE_REJECTED)
            if self._parts.children.add_attempt(tx, held, fence.lease.epoch, command.attempt):
                return Inserted()
            return undone(tx, same_attempt(tx, held, command.attempt))

        shared = begin_wait(command.attempt)
        return await self._run_command("sleep", self._owned(command.lease, begin, reread=inserted, shared=shared))


class _Record(Groupable[RecordOutcome]):
    """One record: with others in one commit, or in steps of its own."""

    __slots__ = ("_attempts", "_children", "_lease", "was_undone")

    def __init__(self, command: commands.Record, children: AttemptRows) -> None:
        self.was_undone = False
        """Whether the last of the steps met an attempt that stands in the way."""
        self._lease = command.lease
        self._attempts = command.attempts
        self._children = children

    def as_shared(self) -> Groupable[RecordOutcome] | None:
        """As work that shares a commit; without attempts, or with one given twice, it goes in steps."""
        count = len(self._attempts)
        if count != 1 and (not count or len({(each.step_key, each.attempt) for each in self._attempts}) < count):
            return None
        return self

    def store(self, tx: Connection, fence: Fence) -> RecordOutcome | FenceRejected:
        """Store the attempts in steps."""
        held = fence.hold(tx, progress=True)
        if held is None:
            return undone(tx, FENCE_REJECTED)
        self.was_undone = not self._children.put_attempts(tx, held, fence.lease.epoch, self._attempts)
        return undone(tx, Conflict()) if self.was_undone else recorded(held)

    def stored_already(self, tx: Connection) -> RecordOutcome:
        """The answer to a record that may have been made before."""
        run_key = key_of(self._lease.run_id)
        if not all_stored(tx, run_key, self._attempts):
            return Conflict()
        row = tx.execute(_MARKS, {"b_run": run_key}).one()
        return Recorded(row.ready_at, row.cancel_requested_at)

    def work(self, fence: Fence) -> RecordOp:
        """The same under this fence."""
        return RecordOp(fence, self._attempts)

    def answer(self, plain: Applied, fence: Fence) -> RecordOutcome:  # noqa: ARG002  (others need it)
        """What its plain answer means."""
        return Recorded(plain.ready_at, plain.cancel_requested_at)


def _keep(tx: Connection, fence: Fence) -> RecordOutcome | FenceRejected:
    held = fence.hold(tx, progress=True)
    return undone(tx, FENCE_REJECTED) if held is None else recorded(held)


def recorded(held: Held) -> Recorded:
    """The answer of an owned write that has been made."""
    return Recorded(held.row["ready_at"], held.row["cancel_requested_at"])


def begin_wait(attempt: StepRecord, approval: ApprovalRecord | None = None) -> Groupable[BeginOutcome]:
    """The beginning of a wait as work that shares a commit."""

    def answer(_plain: Applied, _fence: Fence) -> BeginOutcome:
        return Inserted()

    return Shared(lambda fence: WaitOp(fence, attempt, approval), answer)


def inserted(_tx: Connection) -> Inserted:
    """The answer to a beginning that counted: one that met another attempt does not count."""
    return Inserted()


def same_attempt(tx: Connection, held: Held, attempt: StepRecord) -> Conflict | ExistingSame:
    """The answer where an attempt is stored under this key already."""
    return ExistingSame() if all_stored(tx, held.key, (attempt,)) else Conflict()
