"""Shorthand to make runs, leases and records in tests."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from belay_core.ids import ApprovalId, RunId
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunWait, WorkflowRun
from belay_core.stores import Stores
from belay_core.stores.runs import Acquired, StartOutcome
from belay_testing.clock import ManualClock

SUBJECT = '{"amount":12,"to":"Zoë"}'
DIGEST = sha256(SUBJECT.encode()).hexdigest()


STORE_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(("start", "acquire", "wake", "renew", "park", "settle", "cancel", "resolve"), "runs"),
    **dict.fromkeys(("record", "sleep", "history"), "attempts"),
    **dict.fromkeys(("ask", "withdraw", "lapse", "decide"), "approvals"),
}
"""The store, named as in ``Stores``, that executes a command, by the command's name."""


def send(stores: Any, command: Any) -> Any:
    """Send the command to the store that executes it."""
    name = type(command).__name__.lower()
    return getattr(getattr(stores, STORE_OF[name]), name)(command)


class Kit:
    """Shorthand for commands; names have defaults, times come from the manual clock."""

    digest = DIGEST
    subject = SUBJECT

    def __init__(self, stores: Stores, clock: ManualClock) -> None:
        self.stores = stores
        self.clock = clock

    @property
    def now(self) -> int:
        """The time of the clock."""
        return int(self.clock.now())

    def owner(self, nonce: str | None = None, pid: int = 7) -> OwnerId:
        """A process, by default a new one."""
        return OwnerId("host-a", pid, nonce or self.stores.ids.nonce())

    async def start(self, run_id: str = "run-1", workflow: str = "refund", **more: Any) -> StartOutcome:
        """A new run of a workflow."""
        given: dict[str, Any] = {"version": "1", "input": '{"order":1}', **more}
        return await self.stores.runs.start(commands.Start(RunId(run_id), workflow, **given))

    async def acquire(self, workflow: str = "refund", limit: int = 10, **more: Any) -> list[Acquired]:
        """Own the runs that are due."""
        owner = more.pop("owner", None) or self.owner()
        return list(await self.stores.runs.acquire(commands.Acquire(owner, (workflow,), limit, **more)))

    async def own(self, run_id: str = "run-1", **more: Any) -> Lease:
        """Start and acquire a new run; returns its lease."""
        await self.start(run_id, **more)
        [acquired] = await self.acquire(more.get("workflow", "refund"))
        assert acquired.lease.run_id == run_id
        return acquired.lease

    def step(
        self, key: str = "fetch#1", state: StepState = StepState.SUCCEEDED, attempt: int = 1, **more: Any
    ) -> StepRecord:
        """An attempt of a step; one that has ended has an outcome."""
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
        """An attempt of a gate."""
        given: dict[str, Any] = {"kind": StepKind.GATE, "outcome": None, **more}
        return self.step(key, state, **given)

    def asked(
        self, run_id: str = "run-1", key: str = "editor#1", approval: str = "ap-1", **more: Any
    ) -> ApprovalRecord:
        """The approval that a gate asks for."""
        return ApprovalRecord(ApprovalId(approval), RunId(run_id), key, "editor", SUBJECT, DIGEST, self.now, **more)

    async def ask(self, lease: Lease, key: str = "editor#1", approval: str = "ap-1", **more: Any) -> Any:
        """Open a gate."""
        asked = self.asked(lease.run_id, key, approval, **more)
        return await self.stores.approvals.ask(commands.Ask(lease, self.gate(key), asked))

    async def decide(self, approval: str = "ap-1", decision: Any = "approved", by: str = "ada", **more: Any) -> Any:
        """Answer a gate."""
        digest = more.pop("digest", DIGEST)
        return await self.stores.approvals.decide(commands.Decide(approval, decision, digest, by, **more))

    async def park(self, lease: Lease, reason: str = "approval", **more: Any) -> Any:
        """Suspend a run."""
        waiting = RunWait(reason, more.pop("token", None), more.pop("wake_at_ms", None))
        return await self.stores.runs.park(commands.Park(lease, waiting, **more))

    async def record(self, lease: Lease, *steps: StepRecord) -> Any:
        """Store attempts."""
        return await self.stores.attempts.record(commands.Record(lease, steps))

    async def renew(self, lease: Lease) -> Any:
        """Renew one lease."""
        [answer] = await self.stores.runs.renew(commands.Renew((lease,)))
        return answer

    async def settle(self, lease: Lease, status: Any, **more: Any) -> Any:
        """End a run."""
        return await self.stores.runs.settle(commands.Settle(lease, status, **more))

    async def run(self, run_id: str = "run-1") -> WorkflowRun:
        """A run; it has to exist."""
        found = await self.stores.runs.find(RunId(run_id))
        assert found is not None
        return found

    async def approval(self, approval_id: str = "ap-1") -> ApprovalRecord:
        """An approval; it has to exist."""
        found = await self.stores.approvals.find(approval_id)
        assert found is not None
        return found

    async def history(self, run_id: str = "run-1") -> commands.RunHistory:
        """A run with everything recorded of it."""
        [history] = await self.stores.attempts.history(commands.History((RunId(run_id),)))
        return history

    async def attempts(self, run_id: str = "run-1") -> dict[str, StepRecord]:
        """The attempts of a run by step key; of each key the last one."""
        return {attempt.step_key: attempt for attempt in (await self.history(run_id)).attempts}

    async def kinds(self, run_id: str = "run-1") -> list[str]:
        """The kinds of a run's events, in order."""
        return [entry.kind for entry in await self.stores.journal.read(RunId(run_id))]
