"""Reads of workflows' runs, without a write transaction or a lock."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select, tuple_

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import RunSummary, WorkflowRun
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import (
    RECORDS,
    SUMMARIES,
    Columns,
    owner_of,
    run_record,
    run_summary,
)
from belay_drivers.sql.stores.base import EngineRole, Parts
from belay_drivers.sql.stores.read_batcher import ReadBatcher

RUNS_BY_KEY: Final = RECORDS.where(runs.c.run_id.in_(bindparam("b_runs", expanding=True)))
_OWNERS: Final = (
    select(runs.c.owner_host_id, runs.c.owner_pid, runs.c.owner_nonce)
    .where(runs.c.status == RunStatus.RUNNING.value, runs.c.owner_host_id == bindparam("b_host"))
    .group_by(runs.c.owner_host_id, runs.c.owner_pid, runs.c.owner_nonce)
)


class ReadWorkflowRuns(EngineRole):
    """``find``, ``list`` and ``running_owners``."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._batcher = ReadBatcher(self._rows)

    async def find(self, run_id: RunId) -> WorkflowRun | None:
        """One run with its payloads."""
        return await self._run_command("find", self._found(key_of(run_id)))

    async def _found(self, key: str) -> WorkflowRun | None:
        self._parts.database.check_call()
        row = await (self._batcher.one(key) if self._parts.group_commit is not None else self._inside(key))
        return None if row is None else run_record(row)

    async def _inside(self, key: str) -> Columns | None:
        """The row inside a caller's transaction, on its connection."""
        return await self._parts.database.read(
            lambda tx: tx.execute(RUNS_BY_KEY, {"b_runs": [key]}).mappings().one_or_none()
        )

    async def _rows(self, keys: Sequence[str]) -> Mapping[str, Columns]:
        return {row["run_id"]: row for row in await self._parts.hot.records(keys)}

    async def list(self, command: commands.ListRuns) -> tuple[RunSummary, ...]:
        """A page of runs without payloads, the newest first."""

        def read(tx: Connection) -> tuple[RunSummary, ...]:
            return tuple(run_summary(row) for row in tx.execute(_page(command)).mappings().all())

        return await self._run_command("list", self._parts.database.read(read))

    async def running_owners(self, host_id: str) -> tuple[OwnerId, ...]:
        """The distinct owners of running runs on this host."""

        def read(tx: Connection) -> tuple[OwnerId, ...]:
            found = (owner_of(row) for row in tx.execute(_OWNERS, {"b_host": host_id}).mappings().all())
            return tuple(sorted((owner for owner in found if owner), key=lambda owner: (owner.pid, owner.nonce)))

        return await self._run_command("running_owners", self._parts.database.read(read))


def _page(command: commands.ListRuns) -> Any:
    statement = SUMMARIES.order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(max(command.limit, 0))
    if command.workflow is not None:
        statement = statement.where(runs.c.workflow == command.workflow)
    if command.status is not None:
        statement = statement.where(runs.c.status == command.status.value)
    if command.waiting_reason is not None:
        statement = statement.where(runs.c.waiting_reason == command.waiting_reason)
    if command.idempotency_key is not None:
        statement = statement.where(runs.c.idempotency_key == command.idempotency_key)
    if command.before is not None:
        last = runs.alias("last")
        place = select(last.c.created_at, last.c.run_id).where(last.c.run_id == key_of(command.before))
        statement = statement.where(tuple_(runs.c.created_at, runs.c.run_id) < place.scalar_subquery())
    return statement
