"""Reads of the engine's store: no write transaction, nothing locked."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select, tuple_

from belay_core import commands
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import ApprovalRecord, JournalEntry, RunRecord, RunSummary
from belay_drivers.sql.engine_store.base import Parts, Role
from belay_drivers.sql.fences import OVER
from belay_drivers.sql.gathering import Gathering
from belay_drivers.sql.hot import HistoryRows
from belay_drivers.sql.keys import key_of, padded
from belay_drivers.sql.rows import (
    APPROVALS,
    RECORDS,
    SUMMARIES,
    Columns,
    approval_record,
    journal_entry,
    owner_of,
    run_record,
    run_summary,
    step_record,
)
from belay_drivers.sql.scopes import admit_outside
from belay_drivers.sql.tables import approvals, attempts, journal, runs

CHUNK: Final = 128
"""Runs read in one statement."""

_RUNS: Final = RECORDS.where(runs.c.run_id.in_(bindparam("b_runs", expanding=True)))
_ATTEMPTS: Final = select(attempts).where(
    attempts.c.run_id.in_(bindparam("b_runs", expanding=True)),
    # An attempt of the contract's store has no kind; no engine can read it.
    attempts.c.kind.is_not(None),
)
_APPROVALS: Final = APPROVALS.where(approvals.c.run_id.in_(bindparam("b_runs", expanding=True)))
_STILL_ASKED: Final = (
    APPROVALS.join(runs, runs.c.run_id == approvals.c.run_id)
    .where(runs.c.status.not_in(OVER))
    .order_by(approvals.c.asked_at, approvals.c.approval_id)
    .limit(bindparam("b_limit"))
)
# Decision and moment are null together. The index of all that is open says it by the moment, so that only this list
# walks it: what is open of one run is found by the run.
_OPEN: Final = _STILL_ASKED.where(approvals.c.decided_at.is_(None))
_OPEN_OF_RUN: Final = _STILL_ASKED.where(approvals.c.run_id == bindparam("b_run"), approvals.c.decision.is_(None))
_JOURNAL: Final = (
    select(journal)
    .where(journal.c.run_id == bindparam("b_run"), journal.c.kind.not_like("ownership.%"))
    .order_by(journal.c.entry)
)
_OWNERS: Final = (
    select(runs.c.owner_host_id, runs.c.owner_pid, runs.c.owner_nonce)
    .where(runs.c.status == RunStatus.RUNNING.value, runs.c.owner_host_id == bindparam("b_host"))
    .group_by(runs.c.owner_host_id, runs.c.owner_pid, runs.c.owner_nonce)
)


class Reading(Role):
    """Everything that is only read."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._runs = Gathering(self._rows)

    async def history(self, command: commands.History) -> tuple[commands.RunHistory, ...]:
        """Runs with everything recorded of them, in the order asked for; unknown ones are left out."""
        keys = [key_of(run_id) for run_id in command.run_ids]
        given = {key_of(run.run_id): run for run in command.runs}
        known = await self._guard("history", self._histories(list(dict.fromkeys(keys)), given))
        return tuple(known[key] for key in keys if key in known)

    async def _histories(self, keys: list[str], given: Mapping[str, RunRecord]) -> Mapping[str, commands.RunHistory]:
        """Straight where the database gains by that; in somebody else's transaction nothing is done behind its back."""
        hot, unread = self._parts.hot, [key for key in keys if key not in given]
        if self._parts.coalescer is not None and (rows := await hot.history(keys, unread)) is not None:
            return _told(rows, given)
        return await self._parts.database.read(lambda tx: _read(tx, keys, given))

    async def find_run(self, run_id: RunId) -> RunRecord | None:
        """One run with its payloads."""
        return await self._guard("find_run", self._found(key_of(run_id)))

    async def _found(self, key: str) -> RunRecord | None:
        admit_outside(self._parts.database)
        row = await (self._runs.one(key) if self._parts.coalescer is not None else self._inside(key))
        return None if row is None else run_record(row)

    async def _inside(self, key: str) -> Columns | None:
        """In somebody else's transaction nothing is done behind its back."""
        return await self._parts.database.read(lambda tx: tx.execute(_RUNS, {"b_runs": [key]}).mappings().one_or_none())

    async def _rows(self, keys: Sequence[str]) -> Mapping[str, Columns]:
        return {row["run_id"]: row for row in await self._parts.hot.records(keys)}

    async def list_runs(self, command: commands.ListRuns) -> tuple[RunSummary, ...]:
        """A page of runs without payloads, the newest first."""

        def read(tx: Connection) -> tuple[RunSummary, ...]:
            return tuple(run_summary(row) for row in tx.execute(_page(command)).mappings().all())

        return await self._guard("list_runs", self._parts.database.read(read))

    async def list_approvals(self, command: commands.ListApprovals) -> tuple[ApprovalRecord, ...]:
        """Undecided approvals of runs that are not over, the oldest first."""
        return await self._guard("list_approvals", self._approvals(command))

    async def _approvals(self, command: commands.ListApprovals) -> tuple[ApprovalRecord, ...]:
        parts, limit = self._parts, max(command.limit, 0)
        key = None if command.run_id is None else key_of(command.run_id)
        if key is not None and parts.coalescer is not None and (rows := await parts.hot.asked(key, limit)) is not None:
            return tuple(map(approval_record, rows))

        def read(tx: Connection) -> tuple[ApprovalRecord, ...]:
            statement = _OPEN if key is None else _OPEN_OF_RUN
            bound = {"b_limit": limit} if key is None else {"b_limit": limit, "b_run": key}
            return tuple(approval_record(row) for row in tx.execute(statement, bound).mappings().all())

        return await parts.database.read(read)

    async def find_approval(self, approval_id: str) -> ApprovalRecord | None:
        """One approval, decided or not."""
        statement = APPROVALS.where(approvals.c.approval_id == approval_id)

        def read(tx: Connection) -> ApprovalRecord | None:
            row = tx.execute(statement).mappings().one_or_none()
            return None if row is None else approval_record(row)

        return await self._guard("find_approval", self._parts.database.read(read))

    async def journal(self, run_id: RunId) -> tuple[JournalEntry, ...]:
        """The events of a run in order; ownership facts are a stream of their own."""

        def read(tx: Connection) -> tuple[JournalEntry, ...]:
            rows = tx.execute(_JOURNAL, {"b_run": key_of(run_id)}).mappings().all()
            return tuple(journal_entry(row, run_id) for row in rows)

        return await self._guard("journal", self._parts.database.read(read))

    async def running_owners(self, host_id: str) -> tuple[OwnerId, ...]:
        """The distinct owners of running runs on this host."""

        def read(tx: Connection) -> tuple[OwnerId, ...]:
            found = (owner_of(row) for row in tx.execute(_OWNERS, {"b_host": host_id}).mappings().all())
            return tuple(sorted((owner for owner in found if owner), key=lambda owner: (owner.pid, owner.nonce)))

        return await self._guard("running_owners", self._parts.database.read(read))


def _page(command: commands.ListRuns) -> Any:
    statement = SUMMARIES.order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(max(command.limit, 0))
    if command.workflow is not None:
        statement = statement.where(runs.c.workflow == command.workflow)
    if command.status is not None:
        statement = statement.where(runs.c.status == command.status.value)
    if command.waiting_reason is not None:
        statement = statement.where(runs.c.waiting_reason == command.waiting_reason)
    if command.before is not None:
        last = runs.alias("last")
        place = select(last.c.created_at, last.c.run_id).where(last.c.run_id == key_of(command.before))
        statement = statement.where(tuple_(runs.c.created_at, runs.c.run_id) < place.scalar_subquery())
    return statement


def _read(tx: Connection, keys: list[str], given: Mapping[str, RunRecord]) -> Mapping[str, commands.RunHistory]:
    known: dict[str, commands.RunHistory] = {}
    for start in range(0, len(keys), CHUNK):
        chunk = keys[start : start + CHUNK]
        rows = _rows_of(tx, chunk, [key for key in chunk if key not in given])
        known |= _told(rows, {key: given[key] for key in chunk if key in given})
    return known


def _rows_of(tx: Connection, keys: list[str], unread: list[str]) -> HistoryRows:
    bound = {"b_runs": padded(keys)}
    # In this order: a decision marks the run and is read with it, so the approvals are never behind the mark.
    return HistoryRows(
        tx.execute(_RUNS, {"b_runs": padded(unread)}).mappings().all() if unread else (),
        tx.execute(_ATTEMPTS, bound).mappings().all(),
        tx.execute(_APPROVALS, bound).mappings().all(),
    )


def _told(rows: HistoryRows, given: Mapping[str, RunRecord]) -> dict[str, commands.RunHistory]:
    steps = sorted(rows.attempts, key=lambda row: (row["run_id"], row["full_key"] or "", row["attempt"]))
    asked = sorted(rows.approvals, key=lambda row: (row["run_id"], row["asked_at"], row["approval_id"]))
    attempts_of = {key: tuple(map(step_record, found)) for key, found in groupby(steps, lambda row: row["run_id"])}
    approvals_of = {key: tuple(map(approval_record, found)) for key, found in groupby(asked, lambda row: row["run_id"])}
    known = {row["run_id"]: run_record(row) for row in rows.runs} | dict(given)
    return {
        key: commands.RunHistory(run, attempts_of.get(key, ()), approvals_of.get(key, ())) for key, run in known.items()
    }
