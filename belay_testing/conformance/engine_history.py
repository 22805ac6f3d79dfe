"""A random history of the engine's commands."""

from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from belay_core.ids import ApprovalId, RunId
from belay_core.jitter import seeded
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunWait
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import Renewed, RunParked, Settled
from belay_testing.conformance.twins import Twins

RUNS: Final = [RunId(f"run-{number}") for number in range(12)]
WORKFLOWS: Final = ("refund", "order")


class EngineHistory:
    """Draws commands, valid ones and invalid ones, both often enough."""

    def __init__(self, seed: str, twins: Twins) -> None:
        self.rng = seeded(seed)
        self.twins = twins
        self.leases: list[Lease] = []
        self.live: list[Lease] = []
        self.nonces = 0
        self.seen: dict[Lease, int | None] = {}
        self.asked: list[commands.Ask] = []

    def lease(self) -> Lease:
        """Mostly a valid lease, sometimes a lost one, sometimes one that never existed."""
        kind = self.rng.random()
        if kind < 0.8 and self.live:
            return self.rng.choice(self.live)
        if kind < 0.95 and self.leases:
            return self.rng.choice(self.leases)
        return Lease(self.rng.choice(RUNS), self.owner(), self.rng.randrange(3))

    async def owned(self, command: Any) -> None:
        answer = await self.twins.command(command)
        if isinstance(answer, RunParked | Settled | FenceLost) and command.lease in self.live:
            self.live.remove(command.lease)

    async def known(self) -> tuple[commands.RunHistory, ...]:
        known: tuple[commands.RunHistory, ...] = await self.twins.attempts("history", commands.History(tuple(RUNS)))
        return known

    async def approvals(self) -> list[ApprovalRecord]:
        """The approvals so far, open ones first."""
        asked = [approval for history in await self.known() for approval in history.approvals]
        return sorted(asked, key=lambda approval: (approval.decision is not None, approval.approval_id))

    def owner(self) -> OwnerId:
        self.nonces += 1
        return OwnerId("host", self.nonces % 3, f"nonce-{self.nonces}")

    def attempt(self, kind: StepKind | None = None, state: StepState | None = None) -> StepRecord:
        name = self.rng.choice("abc")
        state = state or self.rng.choice(list(StepState))
        ended = state not in {StepState.RUNNING, StepState.WAITING}
        return StepRecord(
            step_key=f"{name}#1",
            attempt=self.rng.choice((1, 1, 1, 2)),
            step=name,
            kind=kind or self.rng.choice(list(StepKind)),
            state=state,
            idempotent=self.rng.random() < 0.5,
            started_at_ms=self.twins.now,
            recorded=self.rng.randrange(1, 5) if ended else None,
            finished_at_ms=self.twins.now if ended else None,
            outcome=self.rng.choice((None, "1", '"ü"')),
            meta=self.rng.choice(("{}", '{"a":1}')),
        )

    def approval(self, lease: Lease, attempt: StepRecord) -> ApprovalRecord:
        subject = self.rng.choice(("1", "2"))
        return ApprovalRecord(
            ApprovalId(f"{lease.run_id}/{attempt.step_key}"),
            lease.run_id,
            attempt.step_key,
            "gate",
            subject,
            sha256(subject.encode()).hexdigest(),
            self.twins.now,
            self.rng.choice((None, self.twins.now + 5_000)),
        )

    def waiting(self) -> RunWait:
        wake = self.rng.choice((None, self.twins.now + self.rng.randrange(4_000)))
        return RunWait(self.rng.choice(("approval", "timer", "needs_review")), None, wake)

    def seen_by(self, lease: Lease) -> int | None:
        return self.seen.get(lease) if self.rng.random() < 0.8 else None

    async def step(self) -> None:
        await getattr(self, self.rng.choice(MOVES))()
        self.twins.advance(self.rng.choice((0, 0, 1, 700, 16_000)))

    async def start(self) -> None:
        command = commands.Start(
            self.rng.choice(RUNS),
            self.rng.choice(WORKFLOWS),
            "1",
            self.rng.choice(("1", "2")),
            idempotency_key=self.rng.choice((None, None, "k1", "k2")),
            priority=self.rng.randrange(3),
            run_at_ms=self.rng.choice((None, None, self.twins.now + 900)),
        )
        await self.twins.runs("start", command)

    async def acquire(self) -> None:
        dead = tuple(lease.owner for lease in self.leases[-2:] if self.rng.random() < 0.15)
        limit = self.rng.choice((1, 2, 10))
        command = commands.Acquire(self.owner(), WORKFLOWS, limit, dead)
        taken = [acquired.lease for acquired in await self.twins.runs("acquire", command)]
        self.leases += taken
        self.live += taken

    async def renew(self) -> None:
        leases = tuple(self.lease() for _ in range(self.rng.randrange(4)))
        answers = await self.twins.runs("renew", commands.Renew(leases))
        for lease, answer in zip(leases, answers, strict=True):
            if isinstance(answer, Renewed):
                self.seen[lease] = answer.pending_signal_ms

    async def record(self) -> None:
        attempts = tuple(self.attempt() for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3))))
        await self.owned(commands.Record(self.lease(), attempts))

    async def ask(self) -> None:
        if self.asked and self.rng.random() < 0.2:
            return await self.owned(self.rng.choice(self.asked))
        lease = self.lease()
        attempt = replace(self.attempt(StepKind.GATE, StepState.WAITING), attempt=1, outcome=None)
        taken = {approval.approval_id for approval in await self.approvals()}
        approval = self.approval(lease, attempt)
        if approval.approval_id not in taken:
            self.asked.append(commands.Ask(lease, attempt, approval))
            await self.owned(self.asked[-1])
        return None

    async def sleep(self) -> None:
        attempt = self.attempt(StepKind.SLEEP, StepState.WAITING)
        await self.owned(commands.Sleep(self.lease(), attempt))

    async def withdraw(self) -> None:
        attempt = self.attempt(StepKind.GATE, self.rng.choice((StepState.CANCELLED, StepState.SKIPPED)))
        await self.owned(commands.Withdraw(self.lease(), attempt))

    async def lapse(self) -> None:
        lease, attempt = self.lease(), self.attempt(StepKind.GATE, StepState.SUCCEEDED)
        for approval in await self.approvals():
            if approval.run_id == lease.run_id and self.rng.random() < 0.7:
                attempt = replace(attempt, step_key=approval.step_key, attempt=1)
                self.twins.advance(self.rng.choice((0, 5_000)))
        await self.owned(commands.Lapse(lease, f"{lease.run_id}/{attempt.step_key}", attempt))

    async def park(self) -> None:
        lease = self.lease()
        ready = self.rng.choice((None, None, self.twins.now, self.twins.now + 800))
        notes = ('{"n":1}',) * self.rng.randrange(2)
        request = self.rng.choice((None, "1"))
        seen = self.seen_by(lease)
        await self.owned(commands.Park(lease, self.waiting(), request, ready, seen, notes))

    async def settle(self) -> None:
        if self.rng.random() < 0.6:
            return
        lease = self.lease()
        status: Any = self.rng.choice((RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED))
        await self.owned(commands.Settle(lease, status, "1", None, self.seen_by(lease), ()))

    async def wake(self) -> None:
        await self.twins.runs("wake", commands.Wake(self.rng.choice((1, 100))))

    async def cancel(self) -> None:
        if self.rng.random() < 0.4:
            run_id = self.rng.choice(self.live).run_id if self.live else self.rng.choice(RUNS)
            await self.twins.runs("cancel", commands.Cancel(run_id, "ada"))

    async def decide(self) -> None:
        approval, subject = f"{self.rng.choice(RUNS)}/{self.rng.choice('abc')}#1", "1"
        asked = await self.approvals()
        if asked and self.rng.random() < 0.8:
            chosen = self.rng.choice(asked[:4])
            approval, subject = chosen.approval_id, self.rng.choice((chosen.subject, chosen.subject, "other"))
        digest = sha256(subject.encode()).hexdigest()
        decision: Any = self.rng.choice(("approved", "rejected"))
        await self.twins.approvals("decide", commands.Decide(approval, decision, digest, "ada"))

    async def resolve(self) -> None:
        word = self.rng.choice((commands.Happened("7"), commands.Retry(), commands.Retry(), commands.GiveUp()))
        run_id, key = self.rng.choice(RUNS), self.rng.choice((None, "a#1"))
        orphans = [
            (history.run.run_id, attempt.step_key)
            for history in await self.known()
            for attempt in history.attempts
            if attempt.state is StepState.ORPHANED and attempt.resolved_at_ms is None
        ]
        if orphans and self.rng.random() < 0.7:
            run_id, key = self.rng.choice(orphans)
        await self.twins.runs("resolve", commands.Resolve(run_id, word, "ada", key))


MOVES = [
    *("start", "start", "acquire", "acquire", "acquire", "renew", "record", "record", "record", "ask", "ask"),
    *("sleep", "withdraw", "lapse", "park", "park", "settle", "wake", "cancel", "decide", "decide", "resolve"),
]
