"""Stores that answer as they are told, and one example of every operation."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from belay_core.clock import SystemClock
from belay_core.ids import ApprovalId, RunId, Uuid7Ids
from belay_core.records import commands
from belay_core.records.attempt import Attempt, AttemptId, AttemptPatch, FinishAttempt
from belay_core.records.owner import Lease, LivenessEvidence, OwnerId
from belay_core.records.run import RunRow, RunSnapshot, RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunWait, WorkflowRun
from belay_core.stores import Stores
from belay_core.stores import attempts as attempt_outcomes
from belay_core.stores import run_contract as run_outcomes
from belay_core.stores.approvals import Decided, NotYet
from belay_core.stores.attempts import Recorded
from belay_core.stores.runs import Acquired, Renewed, Resolved, Retried, RunParked, RunsWoken, Settled, Started
from belay_core.telemetry import observed
from belay_testing.spans import recorded_counters, recorded_spans

SECRET = "4711-is-a-secret"
RUN = RunId("run-1")
OWNER = OwnerId("host-a", 7, "nonce-1")
LEASE = Lease(RUN, OWNER, 3)
STEP = StepRecord(
    step_key="pay#1",
    attempt=2,
    step="pay",
    kind=StepKind.STEP,
    state=StepState.SUCCEEDED,
    idempotent=True,
    started_at_ms=1,
    outcome=f'"{SECRET}"',
    error=f'"{SECRET}"',
)
APPROVAL = ApprovalRecord(
    approval_id=ApprovalId("approval-1"),
    run_id=RUN,
    step_key="pay#1",
    gate="editor",
    subject=f'"{SECRET}"',
    subject_digest="d",
    asked_at_ms=1,
)
ROW = RunRow(RUN, RunStatus.PENDING, 1, None, None, None, None, None, None, None, None, None, None, f'"{SECRET}"')
RECORD = WorkflowRun(
    run_id=RUN,
    workflow="newsletter",
    version="1",
    status=RunStatus.RUNNING,
    priority=0,
    ready_at_ms=None,
    created_at_ms=1,
    started_at_ms=1,
    finished_at_ms=None,
    owner=OWNER,
    heartbeat_at_ms=1,
    epoch=3,
    takeovers=0,
    cancel_requested_at_ms=None,
    waiting=None,
    idempotency_key=SECRET,
    input=SECRET,
    result=SECRET,
    error=SECRET,
    waiting_request=SECRET,
    trace=None,
)
ATTEMPT = Attempt(RUN, "digest", 2, "running", 1, SECRET)
HISTORY = commands.RunHistory(RECORD, (STEP,), (APPROVAL,))


class CallWork:
    """A store whose every operation gives the answer it is told to, or raises it."""

    def __init__(self) -> None:
        self.answer: object = None
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def operation(*given: object) -> object:
            self.calls.append((name, given))
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

        return operation


@dataclass
class Watched:
    """Observed stores, what stands behind them, and what was recorded of both."""

    stores: Stores
    behind: CallWork
    spans: list[Any]
    counted: Callable[[], dict[str, int]]

    async def do(self, example: "Example", answer: object = None) -> Any:
        self.behind.answer = example.answer if answer is None else answer
        store = {"run": self.stores.runs, "attempt": self.stores.attempts, "approval": self.stores.approvals}
        return await getattr(store[example.store], example.operation)(*example.given)

    @property
    def seen(self) -> list[tuple[str, dict[str, Any]]]:
        return [(span.name, dict(span.attributes)) for span in self.spans]


@pytest.fixture
def watched():
    behind: Any = CallWork()
    stores = Stores(behind, behind, SystemClock(), Uuid7Ids(), behind)
    with recorded_spans() as spans, recorded_counters() as counted:
        yield Watched(observed(stores), behind, spans, counted)


@dataclass
class Example:
    """An operation, what it may be given and answer, and what its span then shows beside the outcome."""

    store: str
    operation: str
    given: tuple[Any, ...]
    answer: object
    outcome: str
    shown: Mapping[str, object] = field(default_factory=dict)

    @property
    def span(self) -> str:
        return f"belay.{self.store}_store.{self.operation}"


_RUN = {"run_id": RUN}
_OWNED = {"run_id": RUN, "owner_host_id": "host-a"}
_ATTEMPT = {"run_id": RUN, "step_key_digest": "digest", "attempt": 2}
_LEASED = {**_OWNED, "epoch": 3}
_STEP = {**_LEASED, "step_key": "pay#1", "attempt": 2}
_APPROVAL = {"approval_id": "approval-1"}
_HOST = {"owner_host_id": "host-a"}
_CLAIMED = {"run_id": RUN, "claimant_host_id": "host-a"}
_PENDING = RunSnapshot(RunStatus.PENDING)
_PROOF = LivenessEvidence(OWNER, 1, "lease-expired")
_DECIDE = commands.Decide(
    ApprovalId("approval-1"), "approved", "d", by=SECRET, reason=SECRET, edited=SECRET, edited_digest=SECRET
)
_START = commands.Start(RUN, "newsletter", "1", input=SECRET, idempotency_key=SECRET)
_SETTLE = commands.Settle(LEASE, RunStatus.COMPLETED, result=SECRET, error=SECRET)
_PARK = commands.Park(LEASE, RunWait("timer", token=SECRET), request=SECRET, notes=(SECRET,))

EXAMPLES = (
    Example("run", "create", (RUN, SECRET), None, "success", _RUN),
    Example("run", "get", (RUN,), ROW, "success", _RUN),
    Example(
        "run",
        "claim_and_own",
        (RUN, RunSnapshot(RunStatus.PENDING), OWNER, 1),
        run_outcomes.Activated(),
        "activated",
        _OWNED,
    ),
    Example("run", "lineage", (RUN,), (ROW,), "success", _RUN),
    Example("run", "latest_round", (RUN,), ROW, "success", _RUN),
    Example("run", "request_cancel", (RUN, 1), run_outcomes.CancelRequested(1), "cancel_requested", _RUN),
    Example("run", "request_cancel_lineage", (RUN, 1), run_outcomes.NotFound(), "not_found", _RUN),
    Example("run", "acknowledge_cancel", (RUN, OWNER, 1), False, "success", _OWNED),
    Example("run", "claim", (RUN, _PENDING, OWNER, 1), run_outcomes.Claimed(1), "claimed", _CLAIMED),
    Example("run", "activate", (RUN, OWNER, 1, _PENDING), run_outcomes.ClaimLost(), "claim_lost", _CLAIMED),
    Example("run", "abandon_claim", (RUN, OWNER, 1), run_outcomes.Abandoned(), "abandoned", _CLAIMED),
    Example(
        "run",
        "recover_claim",
        (RUN, OWNER, 1, OWNER, 2, _PROOF),
        run_outcomes.Recovered(),
        "recovered",
        {**_RUN, "observer_host_id": "host-a"},
    ),
    Example("run", "steal", (RUN, ROW, OWNER, 1, _PROOF), run_outcomes.Claimed(1), "claimed", _CLAIMED),
    Example("run", "reconfirm", (RUN, OWNER, 1), run_outcomes.Updated(), "updated", _OWNED),
    Example("run", "heartbeat", (RUN, OWNER, 1), run_outcomes.Updated(), "updated", _OWNED),
    Example(
        "run",
        "transition_owned",
        (RUN, OWNER, RunStatus.COMPLETED, SECRET),
        run_outcomes.Transitioned(),
        "transitioned",
        {**_OWNED, "to": "completed"},
    ),
    Example("attempt", "put", (ATTEMPT, OWNER), attempt_outcomes.Inserted(), "inserted", {**_ATTEMPT, **_HOST}),
    Example("attempt", "get", (AttemptId(RUN, "digest", 2),), ATTEMPT, "success", _ATTEMPT),
    Example(
        "attempt",
        "finish",
        (FinishAttempt(RUN, "digest", 2, "completed", 2, outcome=SECRET), OWNER),
        attempt_outcomes.Finished(),
        "finished",
        {**_ATTEMPT, **_HOST},
    ),
    Example(
        "attempt",
        "heartbeat",
        (RUN, "digest", 2, OWNER, 1, SECRET),
        run_outcomes.Updated(),
        "updated",
        {**_ATTEMPT, **_HOST},
    ),
    Example(
        "attempt",
        "patch",
        (AttemptId(RUN, "digest", 2), AttemptPatch(error=SECRET), OWNER),
        attempt_outcomes.Patched(),
        "patched",
        {**_ATTEMPT, **_HOST},
    ),
    Example(
        "run",
        "renew",
        (commands.Renew((LEASE, LEASE)),),
        (Renewed(None, None), Renewed(None, None)),
        "renewed",
        {**_HOST, "count": 2},
    ),
    Example(
        "attempt",
        "record",
        (commands.Record(LEASE, (STEP,)),),
        Recorded(None, None),
        "recorded",
        {**_STEP, "count": 1},
    ),
    Example(
        "approval",
        "ask",
        (commands.Ask(LEASE, STEP, APPROVAL),),
        attempt_outcomes.Inserted(),
        "inserted",
        {**_STEP, **_APPROVAL},
    ),
    Example(
        "attempt",
        "sleep",
        (commands.Sleep(LEASE, STEP),),
        attempt_outcomes.ExistingSame(),
        "existing_same",
        _STEP,
    ),
    Example(
        "approval",
        "withdraw",
        (commands.Withdraw(LEASE, STEP),),
        Recorded(None, None),
        "recorded",
        _STEP,
    ),
    Example(
        "approval",
        "lapse",
        (commands.Lapse(LEASE, ApprovalId("approval-1"), STEP),),
        NotYet(9),
        "not_yet",
        {**_STEP, **_APPROVAL},
    ),
    Example(
        "run",
        "park",
        (_PARK,),
        RunParked(),
        "run_parked",
        {**_LEASED, "to": "suspended", "waiting_reason": "timer"},
    ),
    Example("run", "settle", (_SETTLE,), Settled(5), "settled", {**_LEASED, "to": "completed"}),
    Example(
        "run",
        "start",
        (_START,),
        Started(RUN),
        "started",
        {**_RUN, "workflow": "newsletter"},
    ),
    Example(
        "run",
        "acquire",
        (commands.Acquire(OWNER, ("newsletter",), 5),),
        (Acquired(LEASE, RECORD),),
        "acquired",
        {**_HOST, "count": 1},
    ),
    Example("run", "wake", (commands.Wake(),), RunsWoken(4), "runs_woken", {"count": 4}),
    Example(
        "approval",
        "decide",
        (_DECIDE,),
        Decided(1),
        "decided",
        {**_APPROVAL, "decision": "approved"},
    ),
    Example(
        "run",
        "cancel",
        (commands.Cancel(RUN, by=SECRET),),
        run_outcomes.CancelRequested(1),
        "cancel_requested",
        _RUN,
    ),
    Example(
        "run",
        "resolve",
        (commands.Resolve(RUN, commands.Happened(SECRET), by=SECRET),),
        Resolved(1),
        "resolved",
        {**_RUN, "resolution": "happened"},
    ),
    Example("run", "retry", (commands.RetryRun(RUN, SECRET, SECRET),), Retried(1, (SECRET,)), "retried", _RUN),
    Example("attempt", "history", (commands.History((RUN,)),), (HISTORY,), "success", {**_RUN, "count": 1}),
    Example("run", "find", (RUN,), RECORD, "success", _RUN),
    Example("run", "list", (commands.ListRuns(),), (RECORD,), "success", {"count": 1}),
    Example("approval", "list", (commands.ListApprovals(),), (APPROVAL,), "success", {"count": 1}),
    Example("approval", "find", ("approval-1",), APPROVAL, "success", _APPROVAL),
    Example("run", "running_owners", ("host-a",), (OWNER,), "success", _HOST),
)


@pytest.fixture
def examples() -> dict[str, Example]:
    return {example.span: example for example in EXAMPLES}


@pytest.fixture
def secret() -> str:
    return SECRET


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "example" in metafunc.fixturenames:
        metafunc.parametrize("example", EXAMPLES, ids=[example.span for example in EXAMPLES])
