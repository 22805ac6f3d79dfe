"""A server that is stopped without warning, and backends that are ended in the middle of a statement, under load.

Each writer has a run of its own and does one thing after another; what fails it does again, and what it was told is
done has to be there, once.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any

import asyncpg

from belay_core.errors import BelayError
from belay_core.ids import ApprovalId, RunId
from belay_core.records import commands
from belay_core.records.attempt import Attempt
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.stores import Stores
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import Renewed, Settled
from belay_drivers.postgres import open_postgres
from belay_testing.postgres_server import PostgresServer
from belay_testing.postgres_watchdog import server_pid, wait_until_gone

WRITERS = 6
ROUNDS = 12
"""Things done with one run before it is settled and the next one started."""
SUBJECT = "{}"
DIGEST = sha256(SUBJECT.encode()).hexdigest()
GOOD = {"Started", "Found", "Recorded", "Inserted", "ExistingSame", "Decided", "AlreadyDecided", "Settled"}
_END_ONE = """
SELECT count(pg_terminate_backend(pid)) FROM (
  SELECT pid FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    AND state IN ('active', 'idle in transaction')
  LIMIT 1
) chosen
"""


@dataclass
class Found:
    """What was broken off and what became of the writes."""

    broken: int = 0
    acknowledged: int = 0
    failed: int = 0
    """Writes whose caller was told of a failure, and which it did again."""
    resumed: int = 0
    """Writers that went on after the last break."""
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Writer:
    """One owner and its runs."""

    def __init__(self, name: str, stores: Stores, found: Found) -> None:
        self._name, self._stores, self._found = name, stores, found
        self._stores = stores
        self._owner = OwnerId("host", os.getpid(), name)
        self.over = False
        self.done: Counter[tuple[str, str]] = Counter()
        """What was acknowledged: run and thing."""

    async def write_on(self) -> None:
        """Work through one run after another until told that it is over."""
        for number in count():
            if self.over:
                return
            await self._work(RunId(f"{self._name}/{number}"))

    async def _work(self, run_id: RunId) -> None:
        workflow = str(run_id)
        await self._surely(run_id, "start", lambda: self._stores.runs.start(commands.Start(run_id, workflow, "1", "1")))
        lease = await self._acquired(run_id, workflow)
        for number in range(ROUNDS):
            await self._round(lease, number)
        await self._surely(run_id, "settle", lambda: self._settled(lease))

    async def _settled(self, lease: Lease) -> object:
        [renewed] = await self._stores.runs.renew(commands.Renew((lease,)))
        seen = renewed.pending_signal_ms if isinstance(renewed, Renewed) else None
        answer = await self._stores.runs.settle(commands.Settle(lease, RunStatus.COMPLETED, "1", seen_ms=seen))
        run = await self._stores.runs.find(lease.run_id)
        # A settling of which nobody has heard has ended the lease all the same.
        settled = isinstance(answer, FenceLost) and run is not None and run.status is RunStatus.COMPLETED
        return Settled(0) if settled else answer

    async def _round(self, lease: Lease, number: int) -> None:
        stores, run_id, kind = self._stores, lease.run_id, number % 4
        if kind == 0:
            await self._surely(
                run_id, f"s{number}", lambda: stores.attempts.record(commands.Record(lease, (_record(f"s{number}"),)))
            )
        elif kind == 1:
            several = tuple(_record(f"b{number}-{place}") for place in range(3))
            await self._surely(run_id, f"b{number}-0", lambda: stores.attempts.record(commands.Record(lease, several)))
        elif kind == 2:
            attempt = Attempt(run_id, f"c{number}", 1, "running", 0, {})
            await self._surely(run_id, f"c{number}", lambda: self._stores.attempts.put(attempt, lease.owner))
        else:
            name = f"{run_id}/g{number}"
            gate = _record(f"g{number}", StepKind.GATE, StepState.WAITING)
            approval = ApprovalRecord(ApprovalId(name), run_id, f"g{number}", "g", SUBJECT, DIGEST, 0)
            await self._surely(run_id, f"g{number}", lambda: stores.approvals.ask(commands.Ask(lease, gate, approval)))
            decision = commands.Decide(name, "approved", DIGEST, self._name)
            await self._surely(run_id, f"decided {name}", lambda: stores.approvals.decide(decision))

    async def _acquired(self, run_id: RunId, workflow: str) -> Lease:
        for number in count():
            owner = OwnerId(self._owner.host_id, self._owner.pid, f"{run_id}:{number}")
            before = OwnerId(owner.host_id, owner.pid, f"{run_id}:{number - 1}")
            try:
                got = await self._stores.runs.acquire(commands.Acquire(owner, (workflow,), 1, (before,)))
            except BelayError:
                self._found.failed += 1
                continue
            if got:
                return got[0].lease
        raise AssertionError

    async def _surely(self, run_id: RunId, what: str, write: Callable[[], Any]) -> None:
        """Do it until it is answered."""
        while True:
            try:
                answer = type(await write()).__name__
            except BelayError:
                self._found.failed += 1
                continue
            if answer not in GOOD:
                self._found.wrong.append(f"{run_id} {what}: {answer}")
            self._found.acknowledged += 1
            self.done[run_id, what] += 1
            return


def _record(key: str, kind: StepKind = StepKind.STEP, state: StepState = StepState.SUCCEEDED) -> StepRecord:
    ended = None if state is StepState.WAITING else 1
    return StepRecord(
        step_key=key,
        attempt=1,
        step="s",
        kind=kind,
        state=state,
        idempotent=True,
        started_at_ms=0,
        recorded=ended,
        finished_at_ms=ended,
        outcome=None if ended is None else "1",
    )


class Load:
    """Writers at work, and the account of what they were told."""

    def __init__(self, url: str, stores: Stores) -> None:
        self.found = Found()
        self._url = url
        self._writers = [Writer(f"w{number}", stores, self.found) for number in range(WRITERS)]
        self._tasks = [asyncio.ensure_future(writer.write_on()) for writer in self._writers]

    async def resumed(self) -> None:
        """Wait until every writer has been answered again."""
        before = [writer.done.total() for writer in self._writers]
        for writer, known in zip(self._writers, before, strict=True):
            while writer.done.total() == known:
                await asyncio.sleep(0.01)
        self.found.resumed = len(before)

    async def end(self) -> Found:
        """Let the writers come to the end of their runs, and compare what stands there with what they were told."""
        for writer in self._writers:
            writer.over = True
        await asyncio.gather(*self._tasks)
        connection = await asyncpg.connect(self._url)
        try:
            await self._judge(connection)
        finally:
            await connection.close()
        return self.found

    def abort(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _judge(self, connection: Any) -> None:
        async def rows(sql: str) -> Counter[tuple[str, ...]]:
            return Counter(tuple(row) for row in await connection.fetch(sql))

        stands = await rows("SELECT run_id, coalesce(full_key, step_key_digest) FROM belay_attempts")
        stands += await rows("SELECT run_id, 'decided ' || approval_id FROM belay_approvals WHERE decision IS NOT NULL")
        stands += await rows("SELECT run_id, 'start' FROM belay_runs")
        stands += await rows("SELECT run_id, 'settle' FROM belay_runs WHERE status = 'completed'")
        for writer in self._writers:
            self.found.lost += [f"{run} {what}" for run, what in writer.done if not stands[run, what]]
        gates = "SELECT run_id, kind FROM belay_journal WHERE kind IN ('created', 'settled', 'asked', 'decided')"
        for (run, kind), noted in (await rows(gates)).items():
            once = 1 if kind in {"created", "settled"} else ROUNDS // 4
            if noted != once:
                self.found.wrong.append(f"{run}: {noted} entries {kind}")
        batches = await rows("SELECT run_id, split_part(full_key, '-', 1) FROM belay_attempts WHERE full_key LIKE 'b%'")
        self.found.wrong += [f"{run} {batch} by half" for (run, batch), number in batches.items() if number != 3]


async def terminations(url: str, number: int) -> Found:
    """End so many backends while they work."""
    async with open_postgres(url) as stores:
        load = Load(url, stores)
        connection = await asyncpg.connect(url)
        try:
            while load.found.broken < number:
                load.found.broken += await connection.fetchval(_END_ONE)
                await asyncio.sleep(0.01)
            await load.resumed()
            return await load.end()
        finally:
            load.abort()
            await connection.close()


async def restarts(server: PostgresServer, url: str, number: int) -> Found:
    """Stop the server at once so many times, as ``pg_ctl stop -m immediate`` does, and start it again."""
    async with open_postgres(url) as stores:
        load = Load(url, stores)
        try:
            for _ in range(number):
                await load.resumed()
                await asyncio.to_thread(_restart_at_once, server)
                load.found.broken += 1
                await load.resumed()
            return await load.end()
        finally:
            load.abort()


def _restart_at_once(server: PostgresServer) -> None:
    home = server._started_here()
    pid = server_pid(home)
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    assert wait_until_gone(home, pid, 20)
    server.restart()
