"""Acquiring and renewing, each in one transaction of the thread that writes; statements go to the driver itself."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from belay_core.clock import Millis
from belay_core.records.commands import Renew
from belay_drivers.sql.connection.database import Database, Sent
from belay_drivers.sql.statements.hot import Acquisition, HotStatements
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import RECORDS, RECORDS_SQL, Columns
from belay_drivers.sql.stores.runs.acquire_again import OWNED_FACT
from belay_drivers.sqlite.batch import NOTE
from belay_drivers.sqlite.channel import SqliteChannel
from belay_drivers.sqlite.readers import Reader

_RENEW: Final = """UPDATE belay_runs SET heartbeat_at = max(heartbeat_at, ?)
WHERE run_id = ? AND status = 'running' AND owner_host_id = ? AND owner_pid = ? AND owner_nonce = ? AND epoch = ?
RETURNING ready_at, cancel_requested_at"""
_READY: Final = """SELECT priority, ready_at, run_id FROM belay_runs
WHERE workflow = ? AND ready_at IS NOT NULL AND ready_at <= ? AND status IN ('pending', 'suspended')
ORDER BY priority DESC, ready_at, run_id LIMIT ?"""
_OWN: Final = """UPDATE belay_runs SET
  status = 'running', owner_host_id = ?, owner_pid = ?, owner_nonce = ?, heartbeat_at = ?,
  started_at = coalesce(started_at, ?), epoch = epoch + 1, last_nonce = ?, ready_at = NULL,
  takeovers = takeovers + (status = 'running'), last_entry = last_entry + 1,
  waiting_reason = NULL, waiting_token = NULL, waiting_wake_at = NULL,
  claim_host_id = NULL, claim_pid = NULL, claim_nonce = NULL, claimed_at = NULL
WHERE run_id = ? RETURNING last_entry"""
_RECORD: Final = f"{RECORDS_SQL} WHERE belay_runs.run_id = ?"
_RECORDS: Final = f"{RECORDS_SQL} WHERE belay_runs.run_id IN (SELECT value FROM json_each(?))"  # noqa: S608  (no value)
_NAMES: Final = tuple(RECORDS.selected_columns.keys())


@cache
def _lost(workflows: int, dead: int) -> str:
    """Runs whose owner is gone, those proven dead first, for so many workflows and dead owners."""
    owners = " OR ".join(["(owner_host_id = ? AND owner_pid = ? AND owner_nonce = ?)"] * dead) or "0"
    return f"""SELECT priority, run_id, NOT ({owners}) AS silent FROM belay_runs
WHERE status = 'running' AND workflow IN ({", ".join("?" * workflows)}) AND (heartbeat_at < ? OR {owners})
ORDER BY silent, priority DESC, heartbeat_at, run_id LIMIT ?"""  # noqa: S608  (built of marks alone)


class SqliteHotStatements(HotStatements):
    """Over the connection that everything is written on."""

    def __init__(self, database: Database, channel: SqliteChannel, looks: Reader) -> None:
        self._database = database
        self._channel = channel
        self._looks = looks

    async def records(self, keys: Sequence[str]) -> Sequence[Columns]:
        """Read runs, past whatever is being written."""
        sql, given = (_RECORD, keys[0]) if len(keys) == 1 else (_RECORDS, json.dumps(keys))
        rows = await self._database.look(lambda: self._looks.ask(sql, (given,)))
        return [dict(zip(_NAMES, row, strict=True)) for row in rows]

    async def renew(self, command: Renew, now_ms: Millis) -> Sent[Sequence[Columns]]:
        """Renew leases."""

        def renewed(cursor: Any) -> Sequence[Columns]:
            held: list[Columns] = []
            for place, lease in enumerate(command.leases):
                owner = lease.owner
                fence = (key_of(lease.run_id), owner.host_id, owner.pid, owner.nonce, lease.epoch)
                marks = cursor.execute(_RENEW, (now_ms, *fence)).fetchone()
                if marks is not None:
                    held.append({"place": place, "ready_at": marks[0], "cancel_requested_at": marks[1]})
            return held

        return await self._database.send_direct(lambda: self._channel.transaction(renewed))

    async def acquire(self, asked: Acquisition) -> Sent[Sequence[Columns]]:
        """Own runs and note it in their journals; where there are none, nothing is locked."""
        taking = _Taking(asked)
        return await self._database.send_direct(
            lambda: self._channel.transaction(taking.take, unless=taking.is_in_vain)
        )


class _Taking:
    """One acquisition."""

    def __init__(self, asked: Acquisition) -> None:
        self._asked = asked
        self._workflows = tuple(dict.fromkeys(asked.command.workflows))
        self._dead = tuple(dict.fromkeys(asked.command.dead))

    def is_in_vain(self, cursor: Any) -> bool:
        """Whether there is nothing to own."""
        return not self._chosen(cursor)

    def take(self, cursor: Any) -> Sequence[Columns]:
        """Own what there is: the rows after the change, in the order of the answer."""
        return [self._owned(cursor, run_key) for run_key in self._chosen(cursor)]

    def _owned(self, cursor: Any, run_key: str) -> Columns:
        asked, owner = self._asked, self._asked.command.owner
        whose = (owner.host_id, owner.pid, owner.nonce)
        given = (*whose, asked.now_ms, asked.now_ms, owner.nonce, run_key)
        [(entry,)] = cursor.execute(_OWN, given).fetchall()
        cursor.execute(NOTE, (run_key, entry, asked.now_ms, OWNED_FACT, asked.facts))
        row = cursor.execute(_RECORD, (run_key,)).fetchone()
        return dict(zip(_NAMES, row, strict=True))

    def _chosen(self, cursor: Any) -> list[str]:
        """Runs whose owner is gone before those that wait; then by priority."""
        limit = self._asked.command.limit
        dead = [part for owner in self._dead for part in (owner.host_id, owner.pid, owner.nonce)]
        lost = _lost(len(self._workflows), len(self._dead))
        given = (*dead, *self._workflows, self._asked.stale_before, *dead, limit)
        gone = cursor.execute(lost, given).fetchall()
        ready = [
            row
            for workflow in self._workflows
            for row in cursor.execute(_READY, (workflow, self._asked.now_ms, limit)).fetchall()
        ]
        ready.sort(key=lambda row: (-row[0], row[1], row[2]))
        chosen = [(-priority, 0, place, run_key) for place, (priority, run_key, _) in enumerate(gone)]
        chosen += [(-priority, 1, place, run_key) for place, (priority, _, run_key) in enumerate(ready)]
        return [run_key for *_, run_key in sorted(chosen[:limit])]
