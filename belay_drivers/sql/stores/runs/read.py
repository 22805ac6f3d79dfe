"""Read runs, with checks of their rows."""

from typing import Final

from sqlalchemy import bindparam, select

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunRow, RunStatus
from belay_core.stores.run_contract import RunInput
from belay_core.values import json
from belay_core.values.numbers import is_safe
from belay_core.values.text import is_durable
from belay_drivers.sql.schema.tables import runs, values
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.stores.runs.base import RunRole

_parents = values.alias("parent_values")
RUNS: Final = select(
    runs,
    values.c.full_id,
    values.c.full_lineage_id,
    values.c.state,
    _parents.c.full_id.label("parent_full_id"),
).select_from(
    runs.outerjoin(values, values.c.run_id == runs.c.run_id).outerjoin(
        _parents, _parents.c.run_id == runs.c.parent_run_id
    )
)
"""Runs with all columns of a ``RunRow``."""
ONE_RUN: Final = RUNS.where(runs.c.run_id == bindparam("b_run"))
_OWNER: Final = ("owner_host_id", "owner_pid", "owner_nonce")
_CLAIM: Final = ("claim_host_id", "claim_pid", "claim_nonce")
_TEXTS: Final = ("owner_host_id", "owner_nonce", "claim_host_id", "claim_nonce", "parent_run_id", "lineage_id")
_NUMBERS: Final = (
    "started_at",
    "finished_at",
    "owner_pid",
    "heartbeat_at",
    "claim_pid",
    "claimed_at",
    "cancel_requested_at",
    "round_ordinal",
)


class ReadRuns(RunRole):
    """``get``."""

    async def get(self, run_id: RunId) -> RunRow:
        """The run (6.2)."""
        run_id = RunInput("get").run_id(run_id)
        bound = {"b_run": key_of(run_id)}
        work = self._database.read(lambda tx: tx.execute(ONE_RUN, bound).mappings().one_or_none())
        row = await self._guard("get", work, run_id)
        if row is None:
            raise RunStoreError("not_found_row", "get", f"run {run_id} was not found", {"run_id": run_id})
        return decoded(row, "get")


def decoded(row: Columns, method: str) -> RunRow:
    """A row as a record; raises ``decode_failed`` if no store wrote it."""
    run_id = row["full_id"] or row["run_id"]
    if not _is_typed(row):
        cause = {"run_id": run_id, "stage": "row-schema"}
        raise RunStoreError("decode_failed", method, f"could not decode {runs.name} row", cause)
    owner, claim = _identity(row, _OWNER), _identity(row, _CLAIM)
    if not _is_sound(row, owner, claim):
        cause = {
            "run_id": run_id,
            "status": row["status"],
            "heartbeat_at_ms": row["heartbeat_at"],
            "claimed_at_ms": row["claimed_at"],
            "has_claim_columns": any(row[name] is not None for name in _CLAIM),
            "has_owner_columns": any(row[name] is not None for name in _OWNER),
            "state_json_valid": json.text_complaint(row["state"]) is None,
        }
        raise RunStoreError("decode_failed", method, f"{runs.name} row violates durable invariants", cause)
    return _record(row, RunId(run_id), owner, claim)


def _record(row: Columns, run_id: RunId, owner: OwnerId | None, claim: OwnerId | None) -> RunRow:
    parent = row["parent_full_id"] or row["parent_run_id"]
    return RunRow(
        run_id=run_id,
        status=RunStatus(row["status"]),
        created_at_ms=row["created_at"],
        started_at_ms=row["started_at"],
        finished_at_ms=row["finished_at"],
        owner=owner,
        heartbeat_at_ms=row["heartbeat_at"],
        claim=claim,
        claimed_at_ms=row["claimed_at"],
        parent_run_id=None if parent is None else RunId(parent),
        cancel_requested_at_ms=row["cancel_requested_at"],
        lineage_id=row["full_lineage_id"] or row["lineage_id"],
        round_ordinal=row["round_ordinal"],
        state_json=row["state"],
    )


def _is_typed(row: Columns) -> bool:
    return (
        is_durable(row["run_id"])
        and row["status"] in {status.value for status in RunStatus}
        and is_safe(row["created_at"])
        and all(row[name] is None or is_durable(row[name]) for name in _TEXTS)
        and all(row[name] is None or is_safe(row[name]) for name in _NUMBERS)
    )


def _is_sound(row: Columns, owner: OwnerId | None, claim: OwnerId | None) -> bool:
    owned, claimed = owner is not None, claim is not None
    return (
        owned is any(row[name] is not None for name in _OWNER)
        and claimed is any(row[name] is not None for name in _CLAIM)
        and owned is (row["heartbeat_at"] is not None)
        and owned is (row["status"] == RunStatus.RUNNING.value)
        and claimed is (row["claimed_at"] is not None)
        and json.text_complaint(row["state"]) is None
    )


def _identity(row: Columns, names: tuple[str, str, str]) -> OwnerId | None:
    host_id, pid, nonce = (row[name] for name in names)
    if host_id is None or pid is None or nonce is None:
        return None
    return OwnerId(host_id, pid, nonce)
