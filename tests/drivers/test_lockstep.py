"""The same history on every database: a seeded random one, answered equally, command by command."""

from contextlib import AsyncExitStack
from hashlib import sha256

import pytest

from belay_core import commands
from belay_core.chance import seeded
from belay_core.ids import ApprovalId, RunId
from belay_core.outcomes.engine import Acquired, Renewed
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, Waiting
from belay_drivers.postgres import open_postgres
from belay_drivers.sqlite import open_sqlite
from belay_testing.clock import ManualClock
from belay_testing.ids import SequentialIds

RUNS = [RunId(f"run-{number}") for number in range(6)]
WORKFLOWS = ("refund", "order")
COMMANDS = 130


class Twins:
    """Two stores, each with its own clock, given the same commands."""

    def __init__(self, stores, clocks):
        self.stores, self.clocks = stores, clocks

    @property
    def now(self):
        return int(self.clocks[0].now())

    def advance(self, by):
        for clock in self.clocks:
            clock.advance(by)

    async def both(self, name, *given):
        answers = [await getattr(stores.engine, name)(*given) for stores in self.stores]
        assert answers[0] == answers[1], (name, given)
        return answers[0]

    async def compare(self):
        await self.both("history", commands.History(tuple(RUNS)))
        for run_id in RUNS:
            await self.both("journal", run_id)
        await self.both("list_runs", commands.ListRuns())
        await self.both("list_approvals", commands.ListApprovals())
        await self.both("running_owners", "host")


class History:
    """Draws commands that make sense often enough, and nonsense often enough too."""

    def __init__(self, seed, twins):
        self.luck = seeded(seed)
        self.twins = twins
        self.leases = []
        self.nonces = 0
        self.seen = {}

    def lease(self):
        if not self.leases or self.luck.random() < 0.1:
            return Lease(self.luck.choice(RUNS), self.owner(), self.luck.randrange(3))
        return self.luck.choice(self.leases[-8:])

    def owner(self):
        self.nonces += 1
        return OwnerId("host", self.nonces % 3, f"nonce-{self.nonces}")

    def attempt(self, kind=None, state=None):
        name = self.luck.choice("abc")
        state = state or self.luck.choice(list(StepState))
        ended = state not in {StepState.RUNNING, StepState.WAITING}
        return StepRecord(
            step_key=f"{name}#1",
            attempt=self.luck.choice((1, 1, 1, 2)),
            step=name,
            kind=kind or self.luck.choice(list(StepKind)),
            state=state,
            idempotent=self.luck.random() < 0.5,
            started_at_ms=self.twins.now,
            recorded=self.luck.randrange(1, 5) if ended else None,
            finished_at_ms=self.twins.now if ended else None,
            outcome=self.luck.choice((None, "1", '"ü"')),
            meta=self.luck.choice(("{}", '{"a":1}')),
        )

    def approval(self, lease, attempt):
        subject = self.luck.choice(("1", "2"))
        return ApprovalRecord(
            ApprovalId(f"{lease.run_id}/{attempt.step_key}"),
            lease.run_id,
            attempt.step_key,
            "gate",
            subject,
            sha256(subject.encode()).hexdigest(),
            self.twins.now,
            self.luck.choice((None, self.twins.now + 5_000)),
        )

    def waiting(self):
        wake = self.luck.choice((None, self.twins.now + self.luck.randrange(4_000)))
        return Waiting(self.luck.choice(("approval", "timer", "needs_review")), None, wake)

    def seen_by(self, lease):
        return self.seen.get(lease) if self.luck.random() < 0.8 else None

    async def step(self):
        await getattr(self, self.luck.choice(MOVES))()
        self.twins.advance(self.luck.choice((0, 0, 1, 700, 16_000)))

    async def start(self):
        command = commands.Start(
            self.luck.choice(RUNS),
            self.luck.choice(WORKFLOWS),
            "1",
            self.luck.choice(("1", "2")),
            idempotency_key=self.luck.choice((None, None, "k1", "k2")),
            priority=self.luck.randrange(3),
            run_at_ms=self.luck.choice((None, None, self.twins.now + 900)),
        )
        await self.twins.both("start", command)

    async def acquire(self):
        dead = tuple(lease.owner for lease in self.leases[-2:] if self.luck.random() < 0.15)
        limit = self.luck.choice((1, 2, 10))
        command = commands.Acquire(self.owner(), WORKFLOWS, limit, dead)
        self.leases += [a.lease for a in await self.twins.both("acquire", command) if isinstance(a, Acquired)]

    async def renew(self):
        leases = tuple(self.lease() for _ in range(self.luck.randrange(4)))
        answers = await self.twins.both("renew", commands.Renew(leases))
        for lease, answer in zip(leases, answers, strict=True):
            if isinstance(answer, Renewed):
                self.seen[lease] = answer.news_ms

    async def record(self):
        attempts = tuple(self.attempt() for _ in range(self.luck.choice((0, 1, 1, 1, 2, 3))))
        await self.twins.both("record", commands.Record(self.lease(), attempts))

    async def ask(self):
        lease, attempt = self.lease(), self.attempt(StepKind.GATE, StepState.WAITING)
        attempt = StepRecord(**{**fields_of(attempt), "attempt": 1})
        taken = {
            a.approval_id
            for h in await self.twins.both("history", commands.History((lease.run_id,)))
            for a in h.approvals
        }
        approval = self.approval(lease, attempt)
        present = {
            a.step_key
            for h in await self.twins.both("history", commands.History((lease.run_id,)))
            for a in h.attempts
            if a.attempt == 1
        }
        if approval.approval_id in taken and attempt.step_key not in present:
            return
        await self.twins.both("ask", commands.Ask(lease, attempt, approval))

    async def sleep(self):
        await self.twins.both("sleep", commands.Sleep(self.lease(), self.attempt(StepKind.SLEEP, StepState.WAITING)))

    async def withdraw(self):
        await self.twins.both("withdraw", commands.Withdraw(self.lease(), self.attempt(StepKind.GATE)))

    async def lapse(self):
        lease, attempt = self.lease(), self.attempt(StepKind.GATE, StepState.SUCCEEDED)
        await self.twins.both("lapse", commands.Lapse(lease, f"{lease.run_id}/{attempt.step_key}", attempt))

    async def park(self):
        lease = self.lease()
        ready = self.luck.choice((None, None, self.twins.now, self.twins.now + 800))
        notes = ('{"n":1}',) * self.luck.randrange(2)
        await self.twins.both(
            "park",
            commands.Park(lease, self.waiting(), self.luck.choice((None, "1")), ready, self.seen_by(lease), notes),
        )

    async def settle(self):
        if self.luck.random() < 0.5:
            return
        lease = self.lease()
        status = self.luck.choice((RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED))
        await self.twins.both("settle", commands.Settle(lease, status, "1", None, self.seen_by(lease), ()))

    async def wake(self):
        await self.twins.both("wake", commands.Wake(self.luck.choice((1, 100))))

    async def cancel(self):
        if self.luck.random() < 0.3:
            await self.twins.both("cancel", commands.Cancel(self.luck.choice(RUNS), "ada"))

    async def decide(self):
        subject = self.luck.choice(("1", "2"))
        approval = f"{self.luck.choice(RUNS)}/{self.luck.choice('abc')}#1"
        digest = sha256(subject.encode()).hexdigest()
        decision = self.luck.choice(("approved", "rejected"))
        await self.twins.both("decide", commands.Decide(approval, decision, digest, "ada"))

    async def resolve(self):
        word = self.luck.choice((commands.Happened("7"), commands.Retry(), commands.GiveUp()))
        key = self.luck.choice((None, "a#1", "b#1", "c#1"))
        await self.twins.both("resolve", commands.Resolve(self.luck.choice(RUNS), word, "ada", key))


def fields_of(attempt):
    return {name: getattr(attempt, name) for name in StepRecord.__dataclass_fields__}


MOVES = [
    *("start", "acquire", "acquire", "renew", "record", "record", "record", "ask", "ask", "sleep", "withdraw"),
    *("lapse", "park", "park", "settle", "wake", "cancel", "decide", "decide", "resolve"),
]


@pytest.fixture
async def twins(belay_postgres):
    clocks = [ManualClock(), ManualClock()]
    async with AsyncExitStack() as stack:
        small = await stack.enter_async_context(open_sqlite(":memory:", clock=clocks[0], ids=SequentialIds()))
        large = await stack.enter_async_context(open_postgres(belay_postgres.url, clock=clocks[1], ids=SequentialIds()))
        yield Twins([small, large], clocks)


@pytest.mark.parametrize("seed", range(8))
async def test_sqlite_and_postgresql_answer_alike_and_hold_the_same(twins, seed):
    history = History(str(seed), twins)
    for number in range(COMMANDS):
        await history.step()
        if number % 10 == 0:
            await twins.compare()
    await twins.compare()
    assert len(history.leases) > 5
