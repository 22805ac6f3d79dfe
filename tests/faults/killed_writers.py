"""A process that writes to a SQLite file and is killed in the middle, again and again.

What it has said is done is there, nothing is there by half, and what nobody knows of is found out by doing it again.
"""

import asyncio
import os
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from belay_core.ids import ApprovalId, RunId, Uuid7Ids
from belay_core.records import commands
from belay_core.records.attempt import Attempt
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus, is_terminal_run_status
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.stores import Stores, open_stores
from tests.faults.nursery import Nursery

WORKFLOW = "killed"
KINDS = 8
"""What is done with one run: it is started, written to in six ways, and settled."""
BATCH = 3
PATIENCE = 20.0
SUBJECT = "{}"
DIGEST = sha256(SUBJECT.encode()).hexdigest()


@dataclass
class Found:
    """How many writers were killed, and what became of their writes."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    ambiguous: int = 0
    resolved: int = 0
    torn: list[str] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)


# ---------------------------------------------------------------- the writer


async def write_on(url: str, log: str, first: str) -> None:
    """Do one thing after another, from the one with this number on, and say of each that it is done."""
    lines = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with open_stores(url) as stores:
        writer = _Writer(stores)
        number = int(first)
        while True:
            await writer.do(number)
            os.write(lines, f"{number}\n".encode())
            number += 1


class _Writer:
    """An owner that goes on where the one before it was killed."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._lease: Lease | None = None

    async def do(self, number: int) -> None:
        """Do the thing with this number, whether or not it has been done before."""
        run_id, kind = RunId(f"run-{number // KINDS}"), number % KINDS
        if kind == 0:
            await self._stores.runs.start(commands.Start(run_id, WORKFLOW, "1", "1"))
            return
        if self._lease is None or self._lease.run_id != run_id:
            self._lease = await self._acquired(run_id)
        if self._lease is None:
            # It was settled, and only the word of it was lost.
            assert kind == KINDS - 1
            return
        answer = type(await self._written(self._lease, kind)).__name__
        assert answer in {"Recorded", "Inserted", "ExistingSame", "Settled"}, answer

    async def _acquired(self, run_id: RunId) -> Lease | None:
        run = await self._stores.runs.find(run_id)
        assert run is not None
        if is_terminal_run_status(run.status):
            return None
        owner = OwnerId("host", os.getpid(), Uuid7Ids().nonce())
        dead = () if run.owner is None else (run.owner,)
        [got] = await self._stores.runs.acquire(commands.Acquire(owner, (WORKFLOW,), 1, dead))
        return got.lease

    async def _written(self, lease: Lease, kind: int) -> Any:
        stores, gate = self._stores, "gate#1"
        match kind:
            case 1 | 4:
                return await stores.attempts.record(commands.Record(lease, (_step(f"lone-{kind}"),)))
            case 2:
                return await stores.attempts.record(
                    commands.Record(lease, tuple(_step(f"batch-{n}") for n in range(BATCH)))
                )
            case 3:
                name = ApprovalId(f"{lease.run_id}/{gate}")
                approval = ApprovalRecord(name, lease.run_id, gate, "g", SUBJECT, DIGEST, 0)
                return await stores.approvals.ask(commands.Ask(lease, _gate(gate, StepState.WAITING), approval))
            case 5:
                attempt = Attempt(lease.run_id, "contract", 1, "running", 0, {"by": "hand"})
                return await self._stores.attempts.put(attempt, lease.owner)
            case 6:
                return await stores.approvals.withdraw(commands.Withdraw(lease, _gate(gate, StepState.CANCELLED)))
            case _:
                return await stores.runs.settle(commands.Settle(lease, RunStatus.COMPLETED, "1"))


def _step(key: str) -> StepRecord:
    return _record(key, StepKind.STEP, StepState.SUCCEEDED, "1")


def _gate(key: str, state: StepState) -> StepRecord:
    return _record(key, StepKind.GATE, state, None)


def _record(key: str, kind: StepKind, state: StepState, outcome: str | None) -> StepRecord:
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
        outcome=outcome,
    )


# ---------------------------------------------------------------- who kills it, and looks what is left


class _Rows:
    """What stands in the file, run by run."""

    def __init__(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            [self.integrity] = connection.execute("PRAGMA integrity_check").fetchone()
            self.status = dict(connection.execute("SELECT run_id, status FROM belay_runs"))
            self.values = dict(connection.execute("SELECT run_id, result FROM belay_run_values"))
            self.states = {
                (run, key): state
                for run, key, state in connection.execute(
                    "SELECT run_id, coalesce(full_key, step_key_digest), state FROM belay_attempts"
                )
            }
            self.asked = dict(connection.execute("SELECT run_id, coalesce(decision, 'open') FROM belay_approvals"))
            self.noted = Counter(connection.execute("SELECT run_id, kind FROM belay_journal").fetchall())

    def has(self, number: int) -> bool:
        """Whether the thing with this number stands there, once."""
        run, kind = f"run-{number // KINDS}", number % KINDS
        match kind:
            case 0:
                return run in self.status and self.noted[run, "created"] == 1
            case 1 | 4:
                return (run, f"lone-{kind}") in self.states
            case 2:
                return all((run, f"batch-{n}") in self.states for n in range(BATCH))
            case 3:
                return run in self.asked and self.noted[run, "asked"] == 1
            case 5:
                return (run, "contract") in self.states
            case 6:
                return self.asked.get(run) == "withdrawn" and self.noted[run, "withdrawn"] == 1
            case _:
                return self.status.get(run) == "completed" and self.noted[run, "settled"] == 1

    def torn(self) -> list[str]:
        """Runs of which something stands there by half, or twice."""
        found = [f"{run} has no values" for run in self.status if run not in self.values]
        for run, status in self.status.items():
            batch = sum((run, f"batch-{n}") in self.states for n in range(BATCH))
            gate, asked = self.states.get((run, "gate#1")), self.asked.get(run)
            whole = {
                "created": self.noted[run, "created"] == 1,
                "batch": batch in {0, BATCH},
                "asked": (gate is None) == (asked is None) == (self.noted[run, "asked"] == 0),
                "asked once": self.noted[run, "asked"] <= 1,
                "withdrawn": (gate == "cancelled") == (asked == "withdrawn") == (self.noted[run, "withdrawn"] == 1),
                "settled": (status == "completed")
                == (self.values.get(run) is not None)
                == (self.noted[run, "settled"] == 1),
            }
            found += [f"{run}: {what}" for what, is_whole in whole.items() if not is_whole]
        return found


def killed_writers(path: Path, kills: int, seed: int = 1) -> Found:
    """Kill so many writers of this file, one after another."""
    found, jitter = Found(), random.Random(seed)  # noqa: S311  no secret
    log, url = path.with_suffix(".log"), f"sqlite:///{path}"
    unknown: int | None = None
    with Nursery() as nursery:
        following = 0
        for _ in range(kills):
            log.unlink(missing_ok=True)
            pid = nursery.start("write", url, str(log), str(following))
            _wait_for_a_line(log)
            time.sleep(jitter.uniform(0, 0.05))
            nursery.kill(pid)
            found.kills += 1
            done = [int(line) for line in log.read_text().splitlines()]
            rows = _Rows(path)
            if rows.integrity != "ok":
                found.corrupt.append(rows.integrity)
            found.torn += rows.torn()
            found.acknowledged += len(done)
            found.lost += sum(not rows.has(number) for number in done)
            if unknown is not None:
                found.resolved += rows.has(unknown)
            following = done[-1] + 1
            unknown = following
            found.ambiguous += 1
        # The last one's is found out too.
        asyncio.run(_finish(url, following))
        rows = _Rows(path)
        found.resolved += rows.has(following)
        found.torn += rows.torn()
        found.lost += sum(not rows.has(number) for number in range(following + 1))
    return found


async def _finish(url: str, number: int) -> None:
    async with open_stores(url) as stores:
        await _Writer(stores).do(number)


def _wait_for_a_line(log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (log.exists() and log.stat().st_size):
        if time.monotonic() > deadline:
            raise TimeoutError("the writer has not written anything")
        time.sleep(0.001)
