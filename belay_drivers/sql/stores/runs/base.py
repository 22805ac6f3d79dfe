"""The base class and shared helpers of the run store's roles."""

from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, bindparam, select

from belay_core.clock import Clock, Millis, reading
from belay_core.errors import DatabaseError, RunStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import JsonValue
from belay_core.records.owner import OwnerId
from belay_drivers.sql.connection.database import Sender
from belay_drivers.sql.connection.error_translation import code_of, translate_errors
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.rows import Columns, Undecodable

T = TypeVar("T")

_ROW: Final = select(runs).where(runs.c.run_id == bindparam("b_run"))


class RunRole:
    """A group of operations over one database and its clock."""

    def __init__(self, database: Sender, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engines of this store's database (see ``engines_of``)."""
        return self._database.sync_engines

    def _now(self) -> Millis:
        return reading(self._clock)

    async def _guard(self, method: str, work: Awaitable[T], run_id: RunId) -> T:
        def fails(failure: DatabaseError | Undecodable) -> RunStoreError:
            if isinstance(failure, Undecodable):
                cause: dict[str, object] = {"run_id": run_id, "stage": "row-schema"}
                return RunStoreError("decode_failed", method, f"could not decode {failure.table} row", cause)
            return RunStoreError(
                code_of(failure),
                method,
                "database operation failed",
                {"category": failure.code, "cause": failure},
            )

        return await translate_errors(work, fails)


def row_of(tx: Connection, run_key: str) -> Columns | None:
    """The committed run, without a lock."""
    return tx.execute(_ROW, {"b_run": run_key}).mappings().one_or_none()


def is_owner(row: Columns, owner: OwnerId) -> bool:
    """Whether the run is running under exactly this owner."""
    return row["status"] == "running" and owned_by(row) == owner


def owned_by(row: Columns) -> OwnerId | None:
    """The owner in the row."""
    if row["owner_nonce"] is None:
        return None
    return OwnerId(row["owner_host_id"], row["owner_pid"], row["owner_nonce"])


def ownership_facts(owner: OwnerId, granted_at_ms: Millis | None) -> dict[str, JsonValue]:
    """The content of an ownership fact."""
    return {
        "owner": {"host_id": owner.host_id, "pid": owner.pid, "nonce": owner.nonce},
        "granted_at_ms": granted_at_ms,
    }


def owner_columns(owner: OwnerId) -> dict[str, Any]:
    """An owner as columns of a run row."""
    return {"owner_host_id": owner.host_id, "owner_pid": owner.pid, "owner_nonce": owner.nonce}
