"""Create runs."""

from functools import partial
from typing import Any

from sqlalchemy import Connection, insert, select

from belay_core.ids import RunId
from belay_core.records.run import CreateOptions, RunStatus
from belay_core.stores.run_contract import RunInput
from belay_drivers.sql.connection.dialect import SqlDialect
from belay_drivers.sql.schema.tables import runs, values
from belay_drivers.sql.statements.fences import written
from belay_drivers.sql.statements.keys import full_text_of, key_of
from belay_drivers.sql.statements.run_rows import note_created
from belay_drivers.sql.stores.runs.base import RunRole


class CreateRuns(RunRole):
    """``create``."""

    async def create(self, run_id: RunId, state_json: str, options: CreateOptions | None = None) -> None:
        """Store a pending run whose state is exactly this JSON text (6.1)."""
        given = RunInput("create")
        run_id = given.new_run_id(run_id)
        where = given.options(options)
        state = given.state(
            state_json,
            run_id=run_id,
            parent_run_id=where.parent_run_id,
            lineage_id=where.lineage_id,
            round_ordinal=where.round_ordinal,
        )
        rows = _rows(run_id, state, where, self._now())
        add = partial(_insert, rows=rows, dialect=self._database.dialect)
        await self._guard("create", self._database.write(add, partial(add, again=True)), run_id)


def _rows(run_id: RunId, state: str, where: CreateOptions, now_ms: int) -> tuple[dict[str, Any], dict[str, Any]]:
    run_key = key_of(run_id)
    lineage = None if where.lineage_id is None else key_of(where.lineage_id)
    run = {
        "run_id": run_key,
        "status": RunStatus.PENDING.value,
        "created_at": now_ms,
        "parent_run_id": None if where.parent_run_id is None else key_of(where.parent_run_id),
        "lineage_id": lineage,
        "round_ordinal": where.round_ordinal,
        "last_entry": 1,
    }
    texts = {
        "run_id": run_key,
        "full_id": full_text_of(run_id, run_key),
        "full_lineage_id": None
        if where.lineage_id is None or lineage is None
        else full_text_of(where.lineage_id, lineage),
        "state": state,
    }
    return run, texts


def _insert(
    tx: Connection, rows: tuple[dict[str, Any], dict[str, Any]], dialect: SqlDialect, *, again: bool = False
) -> None:
    run, texts = rows
    if again:
        # Waits for an earlier try that may be about to commit; a plain INSERT would fail then.
        adding = dialect.insert_if_absent(runs).returning(*runs.c)
        row = tx.execute(adding, run).mappings().one_or_none()
        if row is None and _arrived(tx, run, texts):
            return
    else:
        row = None
    if row is None:
        row = tx.execute(insert(runs).returning(*runs.c), run).mappings().one()
    tx.execute(insert(values), texts)
    note_created(tx, written(run["run_id"], run["created_at"], row), {})


def _arrived(tx: Connection, run: dict[str, Any], texts: dict[str, Any]) -> bool:
    """Whether the stored run is that of an earlier try; its owners may have changed its state since."""
    statement = (
        select(runs.c.created_at, runs.c.epoch, values.c.state)
        .join(values, values.c.run_id == runs.c.run_id)
        .where(runs.c.run_id == run["run_id"])
    )
    row = tx.execute(statement).one_or_none()
    if row is None or row.created_at != run["created_at"]:
        return False
    return bool(row.epoch > 0 or row.state == texts["state"])
