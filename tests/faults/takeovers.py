"""Runs taken over while their owner goes on writing: nothing it writes is kept once the takeover has committed.

The judge sits in the database. A trigger looks, at the end of the writing transaction, who owns the run, and waits
for a takeover that is about to commit; what somebody else has written by then is noted down.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from typing import Any, TypeAlias
from unittest.mock import patch

from sqlalchemy import select

from belay_core.clock import Clock
from belay_core.errors import StoreError
from belay_core.ids import ApprovalId, RunId
from belay_core.records import commands
from belay_core.records.attempt import Attempt, AttemptPatch, FinishAttempt
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.stores import Stores
from belay_core.stores.attempts import RunNotFound
from belay_core.stores.run_contract import FenceLost, NotFound
from belay_core.stores.runs import Acquired
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements import fences
from belay_drivers.sql.stores.attempts import contract
from belay_drivers.sql.stores.runs import owned
from belay_testing.clock import ManualClock

Opens: TypeAlias = Callable[[Clock], AbstractAsyncContextManager[Stores]]
Write: TypeAlias = Callable[[], Awaitable[object]]

TURNS = 20
"""Takeovers of one run, before the next one is started; so its history stays short."""
REST = 0.02
"""Seconds between two moves of the contract."""
SUBJECT = "{}"
LOST = (FenceLost, NotFound, RunNotFound)

# What an engine's record says is its epoch; what a caller of the contract writes says who it is (``by``).
_BY = (
    "coalesce(json_extract({0}.checkpoint, '$.by'), json_extract({0}.outcome, '$.by'), json_extract({0}.meta, '$.by'))"
)
_SQLITE = [
    "CREATE TABLE judged (run_id TEXT, what TEXT)",
    *(
        f"CREATE TRIGGER judge_{event} AFTER {event} ON belay_attempts BEGIN "  # noqa: S608  constants
        "INSERT INTO judged SELECT NEW.run_id, 'attempt' FROM belay_runs r WHERE r.run_id = NEW.run_id AND ("
        "(NEW.kind IS NOT NULL AND r.epoch <> NEW.epoch) OR "
        f"(NEW.kind IS NULL AND r.owner_nonce IS NOT {_BY.format('NEW')})); END"
        for event in ("INSERT", "UPDATE")
    ),
    """CREATE TRIGGER judge_state AFTER UPDATE OF state ON belay_run_values BEGIN
    INSERT INTO judged SELECT NEW.run_id, 'state' FROM belay_runs r WHERE r.run_id = NEW.run_id
    AND r.owner_nonce IS NOT json_extract(NEW.state, '$.by'); END""",
]
_POSTGRES = [
    "CREATE TABLE judged (run_id TEXT, what TEXT)",
    """CREATE FUNCTION judge_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE r RECORD; who TEXT;
    BEGIN
      SELECT epoch, owner_nonce INTO r FROM belay_runs WHERE run_id = NEW.run_id FOR SHARE;
      who := coalesce(NEW.checkpoint::json ->> 'by', NEW.outcome::json ->> 'by', NEW.meta::json ->> 'by');
      IF (NEW.kind IS NOT NULL AND r.epoch <> NEW.epoch)
        OR (NEW.kind IS NULL AND r.owner_nonce IS DISTINCT FROM who) THEN
        INSERT INTO judged VALUES (NEW.run_id, 'attempt');
      END IF;
      RETURN NULL;
    END $$""",
    """CREATE FUNCTION judge_state() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE r RECORD;
    BEGIN
      SELECT owner_nonce INTO r FROM belay_runs WHERE run_id = NEW.run_id FOR SHARE;
      IF r.owner_nonce IS DISTINCT FROM (NEW.state::json ->> 'by') THEN
        INSERT INTO judged VALUES (NEW.run_id, 'state');
      END IF;
      RETURN NULL;
    END $$""",
    """CREATE CONSTRAINT TRIGGER judge_attempt AFTER INSERT OR UPDATE ON belay_attempts
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION judge_attempt()""",
    """CREATE CONSTRAINT TRIGGER judge_state AFTER UPDATE OF state ON belay_run_values
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION judge_state()""",
]


@dataclass
class Found:
    """What was seen: takeovers, writes accepted and refused, and those that were accepted from a former owner."""

    takeovers: int = 0
    accepted: int = 0
    refused: int = 0
    stale: list[str] = field(default_factory=list)


class Owner:
    """One owner of a run, who does not know that it has been replaced, and writes in several ways at once."""

    def __init__(self, stores: Stores, lease: Lease, found: Found, *, fenced: bool) -> None:
        self._stores, self._lease, self._found, self._fenced = stores, lease, found, fenced
        self._numbers = count()
        self.replaced = asyncio.Event()
        """Set once the takeover is known to have committed."""

    async def write_on(self) -> None:
        """Write in three ways at once, until each is refused; which these are differs from lease to lease."""
        ways = (self._asks, self._renewals, self._attempts, self._moves)
        turn = self._lease.epoch % len(ways)
        chosen = (self._records, ways[turn], ways[turn - 1])
        await asyncio.gather(*(self._on(way) for way in chosen))

    async def _on(self, way: Callable[[], Iterator[Write]]) -> None:
        while True:
            for write in way():
                late = self.replaced.is_set()
                answer = await self._answered(write)
                answers = answer if isinstance(answer, tuple) else (answer,)
                if not answers:
                    continue
                if all(isinstance(each, LOST) for each in answers):
                    self._found.refused += 1
                    if late:
                        return
                    continue
                self._found.accepted += 1
                if late:
                    self._found.stale.append(f"{way.__name__} answered {type(answer).__name__}")
                    return

    async def _answered(self, write: Write) -> object:
        try:
            return await write()
        except StoreError:
            if self._fenced:
                raise
            # Two who both take themselves for the owner get into each other's way.
            return FenceLost()

    async def _rest(self) -> tuple[object, ...]:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.replaced.wait(), REST)
        return ()

    def _step(self, key: str, kind: StepKind = StepKind.STEP, state: StepState = StepState.SUCCEEDED) -> StepRecord:
        ended = state is StepState.SUCCEEDED
        return StepRecord(
            step_key=key,
            attempt=1,
            step="s",
            kind=kind,
            state=state,
            idempotent=True,
            started_at_ms=0,
            recorded=next(self._numbers) + 1 if ended else None,
            finished_at_ms=1 if ended else None,
            outcome="1" if ended else None,
        )

    def _key(self, name: str) -> str:
        return f"{name}/{self._lease.epoch}/{next(self._numbers)}"

    def _records(self) -> Iterator[Write]:
        stores, lease = self._stores, self._lease
        lone, several = (self._step(self._key("lone")),), tuple(self._step(self._key("batch")) for _ in range(3))
        yield lambda: stores.attempts.record(commands.Record(lease, lone))
        yield lambda: stores.attempts.record(commands.Record(lease, several))

    def _asks(self) -> Iterator[Write]:
        key, digest = self._key("gate"), sha256(SUBJECT.encode()).hexdigest()
        name = ApprovalId(f"{self._lease.run_id}/{key}")
        approval = ApprovalRecord(name, self._lease.run_id, key, "g", SUBJECT, digest, 0)
        gate = self._step(key, StepKind.GATE, StepState.WAITING)
        yield lambda: self._stores.approvals.ask(commands.Ask(self._lease, gate, approval))

    def _renewals(self) -> Iterator[Write]:
        yield lambda: self._stores.runs.renew(commands.Renew((self._lease,)))

    def _attempts(self) -> Iterator[Write]:
        store, (run_id, owner) = self._stores.attempts, (self._lease.run_id, self._lease.owner)
        by: Any = {"by": owner.nonce}
        attempt = Attempt(run_id, self._key("attempt"), 1, "running", 0, by)
        name = (run_id, attempt.step_key_digest, 1)
        yield lambda: store.put(attempt, owner)
        yield lambda: store.heartbeat(*name, owner, 1, by)
        yield lambda: store.patch(attempt, AttemptPatch(meta=by), owner)
        yield lambda: store.finish(FinishAttempt(*name, "completed", 2, outcome=by), owner)

    def _moves(self) -> Iterator[Write]:
        # Each of these counts as a write of the lease, whose engine has to look again then; so not all the time.
        yield self._rest
        state = f'{{"by":"{self._lease.owner.nonce}"}}'
        run_id, owner = self._lease.run_id, self._lease.owner
        yield lambda: self._stores.runs.transition_owned(run_id, owner, RunStatus.RUNNING, state)


class Arena:
    """Two processes that take a run from each other in turn, and a database that judges them."""

    def __init__(self, sides: list[Stores], *, fenced: bool) -> None:
        self._sides = sides
        self._fenced = fenced
        self._names = count()
        self.found = Found()

    async def judged(self) -> list[str]:
        """What the judge in the database has noted."""
        database = self._sides[0].runs._database  # type: ignore[attr-defined]
        rows: Any = await database.read(lambda tx: tx.exec_driver_sql("SELECT run_id, what FROM judged").all())
        return [f"{what} of {run_id}" for run_id, what in rows]

    async def install(self) -> None:
        """Call the judge."""
        database = self._sides[0].runs._database  # type: ignore[attr-defined]
        statements = _SQLITE if database.dialect.name == "sqlite" else _POSTGRES

        def run(tx: Any) -> None:
            for statement in statements:
                tx.exec_driver_sql(statement)

        await database.write(run)

    async def fight(self, takeovers: int) -> None:
        """So many takeovers, of one run after another."""
        while self.found.takeovers < takeovers:
            run_id, workflow = RunId(f"run-{next(self._names)}"), f"flow-{next(self._names)}"
            await self._sides[0].runs.start(commands.Start(run_id, workflow, "1", "1"))
            lease = await self._taken(self._sides[0], workflow, ())
            for _ in range(min(TURNS, takeovers - self.found.takeovers)):
                lease = await self._replace(lease, workflow)
                self._sides.reverse()

    async def _replace(self, lease: Lease, workflow: str) -> Lease:
        owner = Owner(self._sides[0], lease, self.found, fenced=self._fenced)
        writing = asyncio.ensure_future(owner.write_on())
        # Into the middle of the writing, at a place that differs each time.
        for _ in range(self.found.takeovers % 13):
            await asyncio.sleep(0.001)
        taken = await self._taken(self._sides[1], workflow, (lease.owner,))
        owner.replaced.set()
        self.found.takeovers += 1
        await asyncio.wait_for(writing, 30)
        [history] = await self._sides[1].attempts.history(commands.History((lease.run_id,)))
        if history.run.owner != taken.owner or history.run.heartbeat_at_ms != int(self._sides[1].clock.now()):
            self.found.stale.append(f"the row of {lease.run_id} was renewed")
        return taken

    async def _taken(self, stores: Stores, workflow: str, dead: tuple[OwnerId, ...]) -> Lease:
        owner = OwnerId("host", 1, f"nonce-{next(self._names)}")
        got: tuple[Acquired, ...] = ()
        while not got:
            # A row that is being written to just then is skipped, not waited for.
            got = await stores.runs.acquire(commands.Acquire(owner, (workflow,), 1, dead))
            await asyncio.sleep(0 if got else 0.002)
        return got[0].lease


async def takeovers(opens: Opens, number: int, *, fenced: bool = True) -> Found:
    """So many takeovers between two openings of one database; ``fenced=False`` takes the fence for a mere reading."""
    async with AsyncExitStack() as stack:
        # Moments tell who has renewed: each side's clock stands still at its own.
        sides = [await stack.enter_async_context(opens(ManualClock(1_000_000.0 + side))) for side in (0, 1)]
        arena = Arena(sides, fenced=fenced)
        await arena.install()
        if not fenced:
            for stores in sides:
                for store in (stores.runs, stores.attempts, stores.approvals):
                    alone: Any = store
                    alone._parts = replace(alone._parts, group_commit=None)
            stack.enter_context(unfenced())
        await arena.fight(number)
        arena.found.stale += await arena.judged()
        return arena.found


@contextmanager
def unfenced() -> Iterator[None]:
    """The fence is read, and nothing is locked."""

    def held(fence: fences.Fence, tx: Any, _change: Any, **_parameters: Any) -> fences.Held | None:
        bound = fences.lease_parameters(fence.lease)
        row = tx.execute(select(runs).where(fences.OWNED), bound).mappings().one_or_none()
        return None if row is None else fences.Held(bound["b_run"], fence.now_ms, row)

    def locked(tx: Any, run_key: str, now_ms: int) -> fences.Held | None:
        row = tx.execute(select(runs).where(runs.c.run_id == run_key)).mappings().one_or_none()
        return None if row is None else fences.Held(run_key, now_ms, row)

    with (
        patch.object(fences.Fence, "held", held),
        patch.object(contract, "lock", locked),
        patch.object(owned, "lock", locked),
    ):
        yield
