"""Read runs with their attempts and approvals in one call."""

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from sqlalchemy import Connection, bindparam, select

from belay_core.records import commands
from belay_core.records.workflow_run import WorkflowRun
from belay_drivers.sql.schema.tables import approvals, attempts
from belay_drivers.sql.statements.hot import HistoryRows
from belay_drivers.sql.statements.keys import key_of, padded
from belay_drivers.sql.statements.rows import (
    APPROVALS,
    approval_record,
    run_record,
    step_record,
)
from belay_drivers.sql.stores.base import EngineRole
from belay_drivers.sql.stores.runs.workflow_reads import RUNS_BY_KEY

CHUNK: Final = 128
"""Maximum number of runs in one statement."""

_ATTEMPTS: Final = select(attempts).where(
    attempts.c.run_id.in_(bindparam("b_runs", expanding=True)),
    # An attempt of the contract's store has no kind; the engine cannot read it.
    attempts.c.kind.is_not(None),
)
_APPROVALS: Final = APPROVALS.where(approvals.c.run_id.in_(bindparam("b_runs", expanding=True)))


class ReadHistories(EngineRole):
    """``history``."""

    async def history(self, command: commands.History) -> tuple[commands.RunHistory, ...]:
        """Runs with their attempts and approvals, in the order asked for; unknown ones are left out."""
        keys = [key_of(run_id) for run_id in command.run_ids]
        given = {key_of(run.run_id): run for run in command.runs}
        known = await self._run_command("history", self._histories(list(dict.fromkeys(keys)), given))
        return tuple(known[key] for key in keys if key in known)

    async def _histories(self, keys: list[str], given: Mapping[str, WorkflowRun]) -> Mapping[str, commands.RunHistory]:
        """By direct statements if the database has them; in a caller's transaction always on its connection."""
        hot, unread = self._parts.hot, [key for key in keys if key not in given]
        if self._parts.group_commit is not None and (rows := await hot.history(keys, unread)) is not None:
            return _histories_of(rows, given)
        return await self._parts.database.read(lambda tx: _read(tx, keys, given))


def _read(tx: Connection, keys: list[str], given: Mapping[str, WorkflowRun]) -> Mapping[str, commands.RunHistory]:
    known: dict[str, commands.RunHistory] = {}
    for start in range(0, len(keys), CHUNK):
        chunk = keys[start : start + CHUNK]
        rows = _rows_of(tx, chunk, [key for key in chunk if key not in given])
        known |= _histories_of(rows, {key: given[key] for key in chunk if key in given})
    return known


def _rows_of(tx: Connection, keys: list[str], unread: list[str]) -> HistoryRows:
    bound = {"b_runs": padded(keys)}
    # In this order: a decision sets the mark of the run, so the approvals are never older than the mark.
    return HistoryRows(
        tx.execute(RUNS_BY_KEY, {"b_runs": padded(unread)}).mappings().all() if unread else (),
        tx.execute(_ATTEMPTS, bound).mappings().all(),
        tx.execute(_APPROVALS, bound).mappings().all(),
    )


def _histories_of(rows: HistoryRows, given: Mapping[str, WorkflowRun]) -> dict[str, commands.RunHistory]:
    steps = sorted(rows.attempts, key=lambda row: (row["run_id"], row["full_key"] or "", row["attempt"]))
    asked = sorted(rows.approvals, key=lambda row: (row["run_id"], row["asked_at"], row["approval_id"]))
    attempts_of = {key: tuple(map(step_record, found)) for key, found in groupby(steps, lambda row: row["run_id"])}
    approvals_of = {key: tuple(map(approval_record, found)) for key, found in groupby(asked, lambda row: row["run_id"])}
    known = {row["run_id"]: run_record(row) for row in rows.runs} | dict(given)
    return {
        key: commands.RunHistory(run, attempts_of.get(key, ()), approvals_of.get(key, ())) for key, run in known.items()
    }
