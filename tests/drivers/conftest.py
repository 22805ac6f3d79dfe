"""A kit to make runs, leases and records by hand, over each kind of store."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest

from belay_core import commands
from belay_core.ids import ApprovalId, RunId
from belay_core.outcomes import engine as outcomes
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunRecord, Waiting
from belay_core.stores import Stores
from belay_testing.clock import ManualClock
from belay_testing.handles import StoresHandle

SUBJECT = '{"amount":12,"to":"Zoë"}'
DIGEST = sha256(SUBJECT.encode()).hexdigest()
STALE = 30_000


class Kit:
    """Shorthand for commands; every name is made up, every moment the manual clock's."""

    digest = DIGEST
    subject = SUBJECT

    def __init__(self, stores: Stores, clock: ManualClock) -> None:
        self.stores = stores
        self.engine = stores.engine
        self.clock = clock

    @property
    def now(self) -> int:
        return int(self.clock.now())

    def owner(self, nonce: str | None = None, pid: int = 7) -> OwnerId:
        return OwnerId("host-a", pid, nonce or self.stores.ids.nonce())

    async def start(self, run_id: str = "run-1", workflow: str = "refund", **more: Any) -> outcomes.StartOutcome:
        given = {"version": "1", "input": '{"order":1}', **more}
        return await self.engine.start(commands.Start(RunId(run_id), workflow, **given))

    async def acquire(self, workflow: str = "refund", limit: int = 10, **more: Any) -> list[outcomes.Acquired]:
        owner = more.pop("owner", None) or self.owner()
        return list(await self.engine.acquire(commands.Acquire(owner, (workflow,), limit, **more)))

    async def own(self, run_id: str = "run-1", **more: Any) -> Lease:
        await self.start(run_id, **more)
        [acquired] = await self.acquire(more.get("workflow", "refund"))
        assert acquired.lease.run_id == run_id
        return acquired.lease

    def step(
        self, key: str = "fetch#1", state: StepState = StepState.SUCCEEDED, attempt: int = 1, **more: Any
    ) -> StepRecord:
        ended = state not in {StepState.RUNNING, StepState.WAITING}
        given: dict[str, Any] = {
            "step": key.partition("#")[0],
            "kind": StepKind.STEP,
            "idempotent": True,
            "started_at_ms": self.now,
            "recorded": 1 if ended else None,
            "finished_at_ms": self.now if ended else None,
            "outcome": '{"n":1}' if state is StepState.SUCCEEDED else None,
            **more,
        }
        return StepRecord(step_key=key, attempt=attempt, state=state, **given)

    def gate(self, key: str = "editor#1", state: StepState = StepState.WAITING, **more: Any) -> StepRecord:
        return self.step(key, state, **{"kind": StepKind.GATE, "outcome": None, **more})

    def asked(
        self, run_id: str = "run-1", key: str = "editor#1", approval: str = "ap-1", **more: Any
    ) -> ApprovalRecord:
        return ApprovalRecord(ApprovalId(approval), RunId(run_id), key, "editor", SUBJECT, DIGEST, self.now, **more)

    async def ask(self, lease: Lease, key: str = "editor#1", approval: str = "ap-1", **more: Any) -> Any:
        asked = self.asked(lease.run_id, key, approval, **more)
        return await self.engine.ask(commands.Ask(lease, self.gate(key), asked))

    async def decide(self, approval: str = "ap-1", decision: Any = "approved", by: str = "ada", **more: Any) -> Any:
        digest = more.pop("digest", DIGEST)
        return await self.engine.decide(commands.Decide(approval, decision, digest, by, **more))

    async def park(self, lease: Lease, reason: str = "approval", **more: Any) -> Any:
        waiting = Waiting(reason, more.pop("token", None), more.pop("wake_at_ms", None))
        return await self.engine.park(commands.Park(lease, waiting, **more))

    async def record(self, lease: Lease, *steps: StepRecord) -> Any:
        return await self.engine.record(commands.Record(lease, steps))

    async def renew(self, lease: Lease) -> Any:
        [answer] = await self.engine.renew(commands.Renew((lease,)))
        return answer

    async def settle(self, lease: Lease, status: Any, **more: Any) -> Any:
        return await self.engine.settle(commands.Settle(lease, status, **more))

    async def run(self, run_id: str = "run-1") -> RunRecord:
        found = await self.engine.find_run(RunId(run_id))
        assert found is not None
        return found

    async def history(self, run_id: str = "run-1") -> commands.RunHistory:
        [history] = await self.engine.history(commands.History((RunId(run_id),)))
        return history

    async def attempts(self, run_id: str = "run-1") -> dict[str, StepRecord]:
        return {attempt.step_key: attempt for attempt in (await self.history(run_id)).attempts}

    async def kinds(self, run_id: str = "run-1") -> list[str]:
        return [entry.kind for entry in await self.engine.journal(RunId(run_id))]


@pytest.fixture
async def kit(belay_each_store: StoresHandle, belay_clock: ManualClock) -> AsyncIterator[Kit]:
    """A kit over each kind of store in turn."""
    async with belay_each_store as stores:
        yield Kit(stores, belay_clock)


@pytest.fixture(params=["file", "postgres"])
def shared_store(request: pytest.FixtureRequest) -> StoresHandle:
    """A store that several openings share, as several processes do."""
    names = {"file": "belay_sqlite_file", "postgres": "belay_postgres"}
    handle: StoresHandle = request.getfixturevalue(names[request.param])
    return handle


@pytest.fixture
def make_kit(belay_clock: ManualClock) -> type[Kit] | Any:
    """Makes a kit over stores the test has opened itself."""
    return lambda stores: Kit(stores, belay_clock)


async def _raw(stores: Stores, *statements: str) -> None:
    """Run statements as an intruder would, past every check of the store."""

    def run(tx: Any) -> None:
        for statement in statements:
            tx.exec_driver_sql(statement)

    await stores.runs._database.write(run)  # type: ignore[attr-defined]


@pytest.fixture
def raw() -> Any:
    """Raw SQL against the stores' database."""
    return _raw


@pytest.fixture
def loosen() -> Any:
    """Takes the checks off a table, so that damage can be done to it."""

    async def loosen(stores: Stores, table: str) -> None:
        database = stores.runs._database  # type: ignore[attr-defined]
        if database.dialect.name == "sqlite":
            await _raw(stores, "PRAGMA ignore_check_constraints = ON")
            return

        def drop(tx: Any) -> None:
            query = f"SELECT conname FROM pg_constraint WHERE conrelid = '{table}'::regclass AND contype = 'c'"  # noqa: S608
            for name in tx.exec_driver_sql(query).scalars().all():
                tx.exec_driver_sql(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')

        await database.write(drop)

    return loosen
