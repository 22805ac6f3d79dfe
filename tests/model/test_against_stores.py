"""The real stores answer what the rules of the protocol say, whatever is asked of them in whatever order."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from hashlib import sha256
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from belay_core.clock import Clock
from belay_core.ids import ApprovalId, RunId
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunWait
from belay_core.stores import Stores
from belay_drivers.postgres import open_postgres
from belay_drivers.sqlite import open_sqlite
from belay_testing.clock import ManualClock
from belay_testing.conformance.kit import send
from tests.model.protocol import Rules
from tests.model.reference import Reference

Opens = Callable[[Clock], AbstractAsyncContextManager[Stores]]

RUNS = [RunId(f"run-{number}") for number in range(3)]
WORKFLOWS = ("refund", "report")
SUBJECT = '{"amount":12}'
DIGEST = sha256(SUBJECT.encode()).hexdigest()
STEPS = 50
TABLES = ("belay_journal", "belay_approvals", "belay_attempts", "belay_run_values", "belay_runs")

runs = st.sampled_from([*RUNS, RUNS[0]])
HELD = 0
leases = st.sampled_from([HELD, HELD, HELD, HELD, -1, -2, -3])
"""Which lease is used: mostly the last that holds, or one of the last that were handed out."""
doctored = st.sampled_from([None] * 6 + ["nonce", "pid", "host", "epoch", "older", "run"])
"""What is wrong with it, mostly nothing."""


class Machine(RuleBasedStateMachine):
    """One database and one reference, asked the same."""

    opens: ClassVar[tuple[Opens, ...]]
    """Each opening is a process of its own on the same database."""
    protocol: ClassVar[Rules] = Rules()
    met: ClassVar[set[str]]
    """Which answers there were to which commands."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.clock = ManualClock()
        self.reference = Reference(int(self.clock.now()), self.protocol)
        self.leases: list[Lease] = []
        self.owners: list[OwnerId] = []
        self.epochs: dict[str, int] = {}
        self.processes = [self.do(self.stack.enter_async_context(opens(self.clock))) for opens in self.opens]
        self.turn = 0

    def do(self, work: Awaitable[Any]) -> Any:
        async def done() -> Any:
            return await work

        return self.runner.run(done())

    @property
    def stores(self) -> Any:
        """The stores of the next process, in turn."""
        self.turn += 1
        return self.processes[self.turn % len(self.processes)]

    def teardown(self) -> None:
        self.do(self.stack.aclose())
        self.runner.close()

    @initialize()
    def empty(self) -> None:
        def delete(tx: Any) -> None:
            for table in TABLES:
                tx.exec_driver_sql(f"DELETE FROM {table}")  # noqa: S608

        self.do(self.processes[0].runs._database.write(delete))
        self.start(RUNS[0], WORKFLOWS[0], None, 0, None)

    def agree(self, command: Any) -> Any:
        """Ask both, and let nothing differ; what they answered."""
        name = type(command).__name__.lower()
        answer = self.do(send(self.stores, command))
        expected = getattr(self.reference, name)(command)
        assert answer == expected, f"{command}: {answer} instead of {expected}"
        for each in answer if isinstance(answer, tuple) else (answer,):
            self.met.add(f"{name} {type(each).__name__}")
        return answer

    def lease(self, place: int, wrong: str | None) -> Lease | None:
        if not self.leases:
            return None
        held = [each for each in self.leases if self.reference.owns(each)]
        lease = held[-1] if place == HELD and held else self.leases[max(place or -1, -len(self.leases))]
        owner = lease.owner
        changed = {
            None: lease,
            "nonce": replace(lease, owner=replace(owner, nonce="another")),
            "pid": replace(lease, owner=replace(owner, pid=owner.pid + 1)),
            "host": replace(lease, owner=replace(owner, host_id="host-z")),
            "epoch": replace(lease, epoch=lease.epoch + 1),
            "older": replace(lease, epoch=lease.epoch - 1),
            "run": replace(lease, run_id=RunId("run-nobody-started")),
        }
        return changed[wrong]

    # ------------------------------------------------------------ anybody

    @rule(by=st.sampled_from([1, 999, 1_000, 5_000, 29_000, 30_000, 30_001]))
    def time_passes(self, by: int) -> None:
        self.clock.advance(by)
        self.reference.now += by

    @rule(
        run_id=runs,
        workflow=st.sampled_from(WORKFLOWS),
        key=st.sampled_from([None, None, None, "k"]),
        priority=st.sampled_from([0, 0, 1]),
        later=st.sampled_from([None, None, 1_000]),
    )
    def start(self, run_id: RunId, workflow: str, key: str | None, priority: int, later: int | None) -> None:
        run_at = None if later is None else self.reference.now + later
        self.agree(commands.Start(run_id, workflow, "1", '{"n":1}', key, priority, run_at))

    @rule(
        process=st.integers(1, 2),
        limit=st.sampled_from([1, 5, 5]),
        workflows=st.sampled_from([WORKFLOWS, WORKFLOWS[:1]]),
        dead=st.lists(st.integers(-4, -1), max_size=2),
        after=st.sampled_from([0, 0, 30_000, 30_001]),
    )
    def acquire(self, process: int, limit: int, workflows: tuple[str, ...], dead: list[int], after: int) -> None:
        """Processes begin anew under the same id all the time; what tells their owners apart is the nonce."""
        self.time_passes(after)
        owner = OwnerId("host-a", process, f"nonce-{len(self.owners)}")
        named = tuple(self.owners[max(place, -len(self.owners))] for place in dead) if self.owners else ()
        command = commands.Acquire(owner, workflows, limit, named)
        got = self.do(self.stores.runs.acquire(command))
        assert [(each.run.run_id, each.lease.epoch) for each in got] == self.reference.acquire(command)
        assert all((each.lease.owner, each.run.owner) == (owner, owner) for each in got)
        self.met.update(f"acquire {'takes over' if each.run.takeovers else 'gets'}" for each in got)
        self.owners.append(owner)
        self.leases += [each.lease for each in got]

    @rule()
    def wake(self) -> None:
        assert self.do(self.stores.runs.wake(commands.Wake())) == self.reference.wake()

    @rule(run_id=st.sampled_from([*RUNS, RunId("run-nobody-started")]))
    def cancel(self, run_id: RunId) -> None:
        self.agree(commands.Cancel(run_id, "ada"))

    @rule(
        run_id=runs,
        gate=st.sampled_from(["editor#1", "editor#2"]),
        decisions=st.lists(
            st.tuples(
                st.sampled_from(["approved", "rejected"]),
                st.sampled_from([DIGEST, DIGEST, "0" * 64]),
                st.sampled_from(["ada", "bob"]),
            ),
            min_size=1,
            max_size=3,
        ),
    )
    def decide(self, run_id: RunId, gate: str, decisions: list[tuple[Any, str, str]]) -> None:
        asked = [name for name, each in self.reference.approvals.items() if each.decision is None]
        name = asked[0] if asked and gate == "editor#1" else f"{run_id}/{gate}"
        for decision, digest, by in decisions:
            self.agree(commands.Decide(name, decision, digest, by))

    # ------------------------------------------------------------ owners, former owners, and impostors

    @rule(places=st.lists(st.tuples(leases, doctored), min_size=1, max_size=3))
    def renew(self, places: list[tuple[int, str | None]]) -> None:
        leases = tuple(lease for place, wrong in places if (lease := self.lease(place, wrong)) is not None)
        self.agree(commands.Renew(leases))

    @rule(
        place=leases,
        wrong=doctored,
        steps=st.dictionaries(st.sampled_from(["a#1", "b#1"]), st.sampled_from("r12"), min_size=1, max_size=2),
    )
    def record(self, place: int, wrong: str | None, steps: dict[str, str]) -> None:
        """Steps that run, and steps that ended with one outcome or another."""
        lease = self.lease(place, wrong)
        if lease is not None:
            self.agree(commands.Record(lease, tuple(step(key, outcome) for key, outcome in sorted(steps.items()))))

    @rule(
        place=leases,
        wrong=doctored,
        gate=st.sampled_from(["editor#1", "editor#2"]),
        lapses=st.booleans(),
        other=st.booleans(),
    )
    def ask(self, place: int, wrong: str | None, gate: str, lapses: bool, other: bool) -> None:
        lease = self.lease(place, wrong)
        if lease is None:
            return
        name = f"{lease.run_id}/{gate}"
        asked = self.reference.approvals.get(name)
        lapse_at = self.reference.now + 5_000 if lapses else None
        if asked is not None:
            lapse_at = asked.lapse_at_ms
        waiting = StepRecord(
            step_key=gate,
            attempt=1,
            step="editor",
            kind=StepKind.GATE,
            state=StepState.WAITING,
            idempotent=True,
            started_at_ms=int(other and asked is not None),
        )
        approval = ApprovalRecord(ApprovalId(name), lease.run_id, gate, "editor", SUBJECT, DIGEST, 0, lapse_at)
        self.agree(commands.Ask(lease, waiting, approval))

    @rule(
        place=leases,
        wrong=doctored,
        seen=st.booleans(),
        notifier=st.sampled_from([None, 1_000]),
        ready=st.sampled_from([None, None, 0]),
    )
    def park(self, place: int, wrong: str | None, seen: bool, notifier: int | None, ready: int | None) -> None:
        lease = self.lease(place, wrong)
        if lease is not None:
            now = self.reference.now
            waiting = RunWait("timer", "a#1", None if notifier is None else now + notifier)
            ready_at = None if ready is None else now + ready
            self.agree(commands.Park(lease, waiting, None, ready_at, self.news_of(lease, seen=seen)))

    @rule(
        place=leases,
        wrong=doctored,
        seen=st.booleans(),
        status=st.sampled_from([RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]),
        asked=st.booleans(),
    )
    def settle(self, place: int, wrong: str | None, seen: bool, status: Any, asked: bool) -> None:
        lease = self.lease(place, wrong)
        if lease is not None:
            self.agree(commands.Settle(lease, status, seen_ms=self.news_of(lease, seen=seen)))
            if asked:
                self.cancel(lease.run_id)

    def news_of(self, lease: Lease, *, seen: bool) -> int | None:
        run = self.reference.runs.get(lease.run_id)
        return run.ready_at if seen and run is not None else None

    # ------------------------------------------------------------ how it stands

    @invariant()
    def everything_stands_as_the_reference_says(self) -> None:
        known = list(self.reference.runs)
        if not known:
            return
        found = self.do(self._read(known))
        assert found == self.reference.seen(known)
        for run_id, run in found.items():
            assert run["epoch"] >= self.epochs.get(run_id, 0)
            self.epochs[run_id] = run["epoch"]

    async def _read(self, run_ids: list[str]) -> dict[str, Any]:
        store = self.processes[0]
        histories = await store.attempts.history(commands.History(tuple(map(RunId, run_ids))))

        def counts(tx: Any) -> dict[str, tuple[int, str | None]]:
            rows = tx.exec_driver_sql("SELECT run_id, write_seq, last_nonce FROM belay_runs").all()
            return {row.run_id: (row.write_seq, row.last_nonce) for row in rows}

        known = await store.runs._database.read(counts)
        return {history.run.run_id: in_words(history, *known[history.run.run_id]) for history in histories}


def step(key: str, outcome: str) -> StepRecord:
    running = outcome == "r"
    return StepRecord(
        step_key=key,
        attempt=1,
        step=key[0],
        kind=StepKind.STEP,
        state=StepState.RUNNING if running else StepState.SUCCEEDED,
        idempotent=False,
        started_at_ms=0,
        recorded=None if running else 1,
        finished_at_ms=None if running else 1,
        outcome=None if running else outcome,
    )


def in_words(history: commands.RunHistory, write_seq: int, last_nonce: str | None) -> dict[str, object]:
    run = history.run
    return {
        "status": run.status,
        "owner": run.owner,
        "heartbeat": run.heartbeat_at_ms,
        "epoch": run.epoch,
        "write_seq": write_seq,
        "last_nonce": last_nonce,
        "takeovers": run.takeovers,
        "ready": run.ready_at_ms,
        "cancelled": run.cancel_requested_at_ms,
        "waiting": run.waiting,
        "started": run.started_at_ms,
        "finished": run.finished_at_ms,
        "attempts": {attempt.step_key: replace(attempt, recorded=None) for attempt in history.attempts},
        "approvals": {approval.approval_id: approval for approval in history.approvals},
    }


def compare(*opens: Opens, examples: int, rules: Rules | None = None) -> set[str]:
    """Run the machine over these openings; raises where store and reference differ. The answers that were met."""
    met: set[str] = set()
    machine = type("Compared", (Machine,), {"opens": opens, "protocol": rules or Rules(), "met": met})
    phases = [Phase.generate] if rules else [Phase.generate, Phase.shrink]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            phases=phases,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
    return met


MET = {
    "start": "Started Found RunIdTaken KeyTaken",
    "cancel": "CancelRequested AlreadyRequested Terminal NotFound",
    "decide": "Decided AlreadyDecided SubjectChanged TooLate NoSuchApproval",
    "renew": "Renewed FenceLost RunNotFound",
    "record": "Recorded Conflict FenceLost RunNotFound",
    "ask": "Inserted ExistingSame Conflict FenceLost RunNotFound",
    "park": "RunParked PendingSignal FenceLost RunNotFound",
    "settle": "Settled PendingSignal FenceLost RunNotFound",
}


def in_memory(clock: Clock) -> AbstractAsyncContextManager[Stores]:
    return open_sqlite(":memory:", clock=clock)


def test_sqlite_answers_what_the_protocol_says():
    met = compare(in_memory, examples=40)
    wanted = {f"{command} {answer}" for command, answers in MET.items() for answer in answers.split()}
    wanted |= {"acquire gets", "acquire takes over"}
    assert met <= wanted
    # What is drawn is the same each time, but not with each version of the tool that draws.
    assert len(met) >= len(wanted) - 4, sorted(wanted - met)


def test_two_processes_on_postgresql_answer_what_the_protocol_says(belay_postgres):
    def on_postgres(clock: Clock) -> AbstractAsyncContextManager[Stores]:
        return open_postgres(belay_postgres.url, clock=clock)

    compare(on_postgres, on_postgres, examples=8)


FAULTS = {
    "the fence compares no owner": Rules(fence_nonce=False),
    "the fence compares no epoch": Rules(fence_epoch=False),
    "renewals are not fenced": Rules(fence_renewals=False),
    "a takeover does not raise the epoch": Rules(epoch_counts=False),
    "a run that is let go loses its epoch": Rules(keeps_epoch=False),
    "a run that is let go forgets its last owner": Rules(keeps_last=False),
    "letting go does not raise the write sequence": Rules(ending_counts=False),
    "an owner is left on the row": Rules(clears_owner=False),
    "proof of death names a process id": Rules(evidence_names_nonce=False),
    "only proof of death takes a run over": Rules(silence_suffices=False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_notices_a_store_that_differs_in_one_rule(fault):
    with pytest.raises(AssertionError):
        compare(in_memory, examples=200, rules=FAULTS[fault])
