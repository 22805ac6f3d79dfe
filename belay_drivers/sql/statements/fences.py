"""The fence: proof that a run row is locked by this transaction, and that its owner may write (kernel 3 and 5).

Every write to an attempt, an approval or the journal of a run needs a ``Held``, and only this module makes one: by
the fenced update of an owner, by a lock, or by inserting the run. A condition that only reads the run row is no fence
on PostgreSQL, where a takeover can commit between the read and the write.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, RowMapping, Update, and_, bindparam, case, select, update

from belay_core.clock import Millis
from belay_core.records.owner import Lease
from belay_core.records.run import TERMINAL, RunStatus
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.keys import key_of

OVER: Final = tuple(sorted(status.value for status in TERMINAL))


@dataclass(frozen=True, slots=True)
class Held:
    """The run row is locked until this transaction ends; ``row`` is its content, ``now_ms`` the time of the write."""

    key: str
    now_ms: Millis
    row: RowMapping


def later(column: ColumnElement[int], moment: ColumnElement[int]) -> ColumnElement[int]:
    """The later of a stored time and a new one, in SQL of every database."""
    return case((column < moment, moment), else_=column)


UNOWNED: Final[Mapping[str, None]] = {
    "owner_host_id": None,
    "owner_pid": None,
    "owner_nonce": None,
    "heartbeat_at": None,
}
UNCLAIMED: Final[Mapping[str, None]] = {
    "claim_host_id": None,
    "claim_pid": None,
    "claim_nonce": None,
    "claimed_at": None,
}
NOT_WAITING: Final[Mapping[str, None]] = {
    "waiting_reason": None,
    "waiting_token": None,
    "waiting_wake_at": None,
}

OWNED: Final = and_(
    runs.c.run_id == bindparam("b_run"),
    runs.c.status == RunStatus.RUNNING.value,
    runs.c.owner_host_id == bindparam("b_host"),
    runs.c.owner_pid == bindparam("b_pid"),
    runs.c.owner_nonce == bindparam("b_nonce"),
    runs.c.epoch == bindparam("b_epoch"),
)
"""The run is running under exactly this lease."""


def owned_update(*guards: ColumnElement[bool], **changes: Any) -> Update:
    """The first statement of every owned write: it checks the fence, locks the row, and counts the write."""
    return (
        update(runs)
        .where(OWNED, runs.c.write_seq == bindparam("b_seq"), *guards)
        .values(write_seq=runs.c.write_seq + 1, **changes)
        .returning(*runs.c)
    )


RENEWED: Final = {"heartbeat_at": later(runs.c.heartbeat_at, bindparam("b_now"))}
_HOLD: Final = owned_update(**RENEWED)
_HOLD_WITH_PROGRESS: Final = owned_update(**RENEWED, takeovers=0)
_RUN: Final = select(runs).where(runs.c.run_id == bindparam("b_run"))
_LOCK: Final = _RUN.with_for_update(key_share=True)
_LOCK_OUT: Final = _RUN.with_for_update()


def lease_parameters(lease: Lease) -> dict[str, Any]:
    """The parameters of ``OWNED``."""
    return {
        "b_run": key_of(lease.run_id),
        "b_host": lease.owner.host_id,
        "b_pid": lease.owner.pid,
        "b_nonce": lease.owner.nonce,
        "b_epoch": lease.epoch,
    }


class Fence(NamedTuple):
    """The condition of an owned write: the lease, the expected write sequence, and the time."""

    lease: Lease
    seq: int
    now_ms: Millis
    key: str | None = None
    """The key of the run, where it is known."""

    def parameters(self) -> dict[str, Any]:
        """The parameters of an ``owned_update``."""
        return {**lease_parameters(self.lease), "b_seq": self.seq, "b_now": self.now_ms}

    def held(self, tx: Connection, change: Update, **parameters: Any) -> Held | None:
        """Begin an owned write with this update; None if the fence or a guard refused it."""
        row = tx.execute(change, {**self.parameters(), **parameters}).mappings().one_or_none()
        return None if row is None else Held(key_of(self.lease.run_id), self.now_ms, row)

    def hold(self, tx: Connection, *, progress: bool = False) -> Held | None:
        """Begin an owned write without a change of the run row; ``progress`` resets the takeovers."""
        return self.held(tx, _HOLD_WITH_PROGRESS if progress else _HOLD)


def lock(tx: Connection, run_key: str, now_ms: Millis) -> Held | None:
    """Lock a run, owned or not; later statements read the committed state of its child rows."""
    row = tx.execute(_LOCK, {"b_run": run_key}).mappings().one_or_none()
    return None if row is None else Held(run_key, now_ms, row)


def lock_out(tx: Connection, run_key: str, now_ms: Millis) -> Held | None:
    """Lock a run that is to be deleted: the creation of a child waits as well."""
    row = tx.execute(_LOCK_OUT, {"b_run": run_key}).mappings().one_or_none()
    return None if row is None else Held(run_key, now_ms, row)


def written(run_key: str, now_ms: Millis, row: RowMapping) -> Held:
    """A run whose row this transaction has just inserted or changed; ``row`` was returned by that statement."""
    return Held(run_key, now_ms, row)
