"""Start runs."""

from functools import partial

from sqlalchemy import Connection, Insert, insert, select

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.stores.runs import Found, KeyTaken, RunIdTaken, Started, StartOutcome, check_start
from belay_drivers.sql.connection.database import Unknown, undone
from belay_drivers.sql.connection.dialect import Failure
from belay_drivers.sql.schema.tables import runs, values
from belay_drivers.sql.statements.fences import written
from belay_drivers.sql.statements.keys import full_text_of, key_of
from belay_drivers.sql.statements.run_rows import note_created
from belay_drivers.sql.statements.write_ops import Applied, StartOp
from belay_drivers.sql.stores.base import EngineRole, Parts

_KNOWN = select(
    runs.c.run_id,
    runs.c.status,
    runs.c.workflow,
    runs.c.idempotency_key,
    runs.c.created_at,
    values.c.input,
    values.c.full_id,
).join(values, values.c.run_id == runs.c.run_id)


class StartRuns(EngineRole):
    """``start``."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._insert: Insert = parts.database.dialect.insert_if_absent(runs)

    async def start(self, command: commands.Start) -> StartOutcome:
        """Store a new run, or find the existing one of this key or id."""
        check_start(command)
        ended = await self._run_command("start", self._start(command))
        if isinstance(ended, Started):
            self._parts.notifier.notify(ended.run_id, ready=True)
        return ended

    async def _start(self, command: commands.Start) -> StartOutcome:
        now_ms = self._now()
        begin = partial(self._begin, command=command, now_ms=now_ms)
        again = partial(begin, again=True)
        answer = None
        if self._parts.group_commit is not None:
            answer = await self._parts.group_commit.put(StartOp(command, now_ms))
        if isinstance(answer, Applied):
            return Started(command.run_id)
        if isinstance(answer, Failure) and not answer.again:
            raise answer.error()
        tried = int(isinstance(answer, Failure))
        return await self._parts.database.write(again if isinstance(answer, Unknown) else begin, again, tried=tried)

    def _begin(self, tx: Connection, command: commands.Start, now_ms: Millis, *, again: bool = False) -> StartOutcome:
        run_key = key_of(command.run_id)
        row = {
            "run_id": run_key,
            "status": RunStatus.PENDING.value,
            "workflow": command.workflow,
            "version": command.version,
            "priority": command.priority,
            "ready_at": now_ms if command.run_at_ms is None else command.run_at_ms,
            "created_at": now_ms,
            "idempotency_key": command.idempotency_key,
            "last_entry": 1,
        }
        inserted = tx.execute(self._insert.returning(*runs.c), row).mappings().one_or_none()
        if inserted is None:
            return undone(tx, _known(tx, command, now_ms, again=again))
        tx.execute(
            insert(values),
            {
                "run_id": run_key,
                "full_id": full_text_of(command.run_id, run_key),
                "state": "{}",
                "input": command.input,
                "trace": command.trace,
            },
        )
        held = written(run_key, now_ms, inserted)
        note_created(tx, held, {"workflow": command.workflow, "version": command.version})
        return Started(command.run_id)


def _known(tx: Connection, command: commands.Start, now_ms: Millis, *, again: bool) -> StartOutcome:
    """The run that conflicted; read by a separate statement, which sees what committed meanwhile."""
    run_key = key_of(command.run_id)
    if command.idempotency_key is not None:
        row = tx.execute(_KNOWN.where(runs.c.idempotency_key == command.idempotency_key)).one_or_none()
        if row is not None:
            known = RunId(row.full_id or row.run_id)
            if row.workflow != command.workflow:
                return KeyTaken(known, row.workflow)
            if again and known == command.run_id and row.created_at == now_ms:
                return Started(known)
            return Found(known, RunStatus(row.status))
    row = tx.execute(_KNOWN.where(runs.c.run_id == run_key)).one_or_none()
    wanted = (command.workflow, command.idempotency_key, command.input)
    if row is None or (row.workflow, row.idempotency_key, row.input) != wanted:
        return RunIdTaken()
    if again and row.created_at == now_ms:
        return Started(command.run_id)
    return Found(command.run_id, RunStatus(row.status))
