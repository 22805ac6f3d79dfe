"""What a store has to answer, by the rules of ``protocol`` and the contract of the engine's commands (kernel 26).

Everything is kept in dictionaries and executed at once: no transactions, no retries, no SQL. Commands and answers
are those of the real stores, so that they can be compared as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from belay_core.limits import HEARTBEAT_STALE_AFTER
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus, is_terminal_run_status
from belay_core.records.step_record import OPEN, StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunWait
from belay_core.stores.approvals import AlreadyDecided, Decided, DecideOutcome, NoSuchApproval, SubjectChanged, TooLate
from belay_core.stores.attempts import (
    BeginOutcome,
    Conflict,
    ExistingSame,
    Inserted,
    Recorded,
    RecordOutcome,
    RunNotFound,
)
from belay_core.stores.run_contract import (
    AlreadyRequested,
    CancelRequested,
    FenceLost,
    NotFound,
    RequestCancelOutcome,
    Terminal,
)
from belay_core.stores.runs import (
    Found,
    KeyTaken,
    PendingSignal,
    Renewed,
    RenewOutcome,
    RunIdTaken,
    RunParked,
    RunParkOutcome,
    RunsWoken,
    Settled,
    SettleOutcome,
    Started,
    StartOutcome,
)
from tests.model import protocol
from tests.model.protocol import PENDING, RUNNING, SUSPENDED, Evidence, Rules, Run


@dataclass
class Kept:
    """One run and what belongs to it."""

    given: commands.Start
    ready_at: int | None
    created_at: int
    row: Run = field(default_factory=Run)
    ended: RunStatus | None = None
    heartbeat_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    takeovers: int = 0
    cancel_requested_at: int | None = None
    waiting: RunWait | None = None
    attempts: dict[str, StepRecord] = field(default_factory=dict)

    @property
    def status(self) -> RunStatus:
        return self.ended or RunStatus(self.row.status)

    @property
    def owner(self) -> OwnerId | None:
        assert self.row.owner is None or isinstance(self.row.owner, OwnerId)
        return self.row.owner


class Reference:
    """A store, as it should be; ``now`` is moved by hand."""

    def __init__(self, now: int, rules: Rules | None = None) -> None:
        self.now = now
        self.runs: dict[str, Kept] = {}
        self.approvals: dict[str, ApprovalRecord] = {}
        self._rules = rules or Rules()

    # ------------------------------------------------------------ what anybody asks for

    def start(self, command: commands.Start) -> StartOutcome:
        for run_id, run in self.runs.items():
            if command.idempotency_key is not None and run.given.idempotency_key == command.idempotency_key:
                if run.given.workflow != command.workflow:
                    return KeyTaken(run.given.run_id, run.given.workflow)
                assert run_id == run.given.run_id
                return Found(run.given.run_id, run.status)
        known = self.runs.get(command.run_id)
        if known is None:
            ready_at = self.now if command.run_at_ms is None else command.run_at_ms
            self.runs[command.run_id] = Kept(command, ready_at, self.now)
            return Started(command.run_id)
        same = all(
            getattr(known.given, name) == getattr(command, name) for name in ("workflow", "idempotency_key", "input")
        )
        return Found(command.run_id, known.status) if same else RunIdTaken()

    def acquire(self, command: commands.Acquire) -> list[tuple[str, int]]:
        """The runs that are got, each with its epoch, in the order of the answer."""
        found = self._abandoned(command)[: command.limit]
        found = (found + self._due(command))[: command.limit]
        found.sort(key=lambda each: (-each[1].given.priority, each[0]))
        for _, run in found:
            self._take(run, command.owner)
        return [(run.given.run_id, run.row.epoch) for _, run in found]

    def _abandoned(self, command: commands.Acquire) -> list[tuple[int, Kept]]:
        found: list[tuple[tuple[object, ...], Kept]] = []
        for run in self.runs.values():
            if run.row.status != RUNNING or run.given.workflow not in command.workflows:
                continue
            proofs: list[Evidence | None] = [Evidence("dead", owner, owner.pid) for owner in command.dead]
            row = run.row._replace(heard=(run.heartbeat_at or 0) >= self.now - HEARTBEAT_STALE_AFTER)
            if any(protocol.may_take(self._rules, row, proof) for proof in (None, *proofs)):
                silent = run.owner not in command.dead
                found.append(((silent, -run.given.priority, run.heartbeat_at, run.given.run_id), run))
        return [(0, run) for _, run in sorted(found, key=lambda each: each[0])]

    def _due(self, command: commands.Acquire) -> list[tuple[int, Kept]]:
        waiting = [
            run
            for run in self.runs.values()
            if run.row.status in (PENDING, SUSPENDED)
            and run.given.workflow in command.workflows
            and run.ready_at is not None
            and run.ready_at <= self.now
        ]
        waiting.sort(key=lambda run: (-run.given.priority, run.ready_at, run.given.run_id))
        return [(1, run) for run in waiting]

    def _take(self, run: Kept, owner: OwnerId) -> None:
        run.takeovers += run.row.status == RUNNING
        run.row = protocol.taken(self._rules, run.row, owner, owner.pid)
        run.heartbeat_at = self.now
        run.started_at = self.now if run.started_at is None else run.started_at
        run.ready_at = run.waiting = None

    def wake(self) -> RunsWoken:
        due = [
            run
            for run in self.runs.values()
            if run.row.status == SUSPENDED
            and run.waiting is not None
            and run.waiting.wake_at_ms is not None
            and run.waiting.wake_at_ms <= self.now
            and (run.ready_at is None or run.ready_at > self.now)
        ]
        for run in due:
            run.ready_at = self.now
        return RunsWoken(len(due))

    def cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        run = self.runs.get(command.run_id)
        if run is None:
            return NotFound()
        if is_terminal_run_status(run.status):
            return Terminal(run.status)
        if run.cancel_requested_at is not None:
            return AlreadyRequested(run.cancel_requested_at)
        run.cancel_requested_at = self.now
        self._mark(run)
        return CancelRequested(self.now)

    def decide(self, command: commands.Decide) -> DecideOutcome:
        asked = self.approvals.get(command.approval_id)
        if asked is None:
            return NoSuchApproval()
        run = self.runs[asked.run_id]
        if asked.decision in ("approved", "rejected"):
            assert asked.decided_at_ms is not None
            return AlreadyDecided(asked.decision, asked.decided_by, asked.decided_at_ms)
        lapsed = asked.lapse_at_ms is not None and self.now >= asked.lapse_at_ms
        if asked.decision is not None or lapsed or is_terminal_run_status(run.status):
            return TooLate()
        if asked.subject_digest != command.digest:
            return SubjectChanged()
        self.approvals[command.approval_id] = replace(
            asked, decision=command.decision, decided_by=command.by, decided_at_ms=self.now
        )
        self._mark(run)
        return Decided(self.now)

    def _mark(self, run: Kept) -> None:
        if run.ready_at is None:
            run.ready_at = self.now
        elif run.row.status == RUNNING:
            run.ready_at = max(self.now, run.ready_at + 1)
        else:
            run.ready_at = min(self.now, run.ready_at)

    # ------------------------------------------------------------ what owners ask for

    def renew(self, command: commands.Renew) -> tuple[RenewOutcome, ...]:
        return tuple(self._renewed(lease) for lease in command.leases)

    def _renewed(self, lease: Lease) -> RenewOutcome:
        run = self._held(lease)
        if isinstance(run, Kept):
            self._alive(run)
            return Renewed(run.ready_at, run.cancel_requested_at)
        return run

    def record(self, command: commands.Record) -> RecordOutcome:
        run = self._held(command.lease)
        if not isinstance(run, Kept):
            return run
        self._write(run, "record")
        run.takeovers = 0
        stored = {attempt.step_key: replace(attempt, epoch=run.row.epoch) for attempt in command.attempts}
        if not all(self._fits(run, attempt) for attempt in stored.values()):
            return Conflict()
        for key, attempt in stored.items():
            before = run.attempts.get(key)
            if before is None or before.state in OPEN:
                run.attempts[key] = attempt
        return Recorded(run.ready_at, run.cancel_requested_at)

    def _fits(self, run: Kept, attempt: StepRecord) -> bool:
        before = run.attempts.get(attempt.step_key)
        return before is None or before.state in OPEN or replace(before, epoch=0) == replace(attempt, epoch=0)

    def ask(self, command: commands.Ask) -> BeginOutcome:
        run = self._held(command.lease)
        if not isinstance(run, Kept):
            return run
        before = run.attempts.get(command.attempt.step_key)
        if before is not None:
            return ExistingSame() if replace(before, epoch=0) == command.attempt else Conflict()
        self._write(run, "record")
        run.attempts[command.attempt.step_key] = replace(command.attempt, epoch=run.row.epoch)
        self.approvals[command.approval.approval_id] = command.approval
        return Inserted()

    def park(self, command: commands.Park) -> RunParkOutcome:
        run = self._held(command.lease)
        if not isinstance(run, Kept):
            return run
        if command.ready_at_ms is None and run.ready_at not in (None, command.seen_ms):
            return PendingSignal()
        self._write(run, "park")
        marks = [mark for mark in (run.ready_at, command.ready_at_ms) if mark is not None]
        run.ready_at = None if command.ready_at_ms is None else min(marks)
        run.waiting = command.waiting
        return RunParked()

    def settle(self, command: commands.Settle) -> SettleOutcome:
        run = self._held(command.lease)
        if not isinstance(run, Kept):
            return run
        unwanted = run.cancel_requested_at is not None and command.status is not RunStatus.CANCELLED
        if unwanted or run.ready_at not in (None, command.seen_ms):
            return PendingSignal()
        self._write(run, "settle")
        run.ended, run.finished_at = command.status, self.now
        run.ready_at = run.waiting = None
        self._withdraw(run)
        return Settled(self.now)

    def _withdraw(self, run: Kept) -> None:
        for key, approval in self.approvals.items():
            if approval.run_id == run.given.run_id and approval.decision is None:
                self.approvals[key] = replace(approval, decision="withdrawn", decided_at_ms=self.now)
                gate = run.attempts[approval.step_key]
                if (gate.kind, gate.state) == (StepKind.GATE, StepState.WAITING):
                    # Its place among the answers is not compared: several close in the order of their digests.
                    closed = replace(gate, state=StepState.CANCELLED, finished_at_ms=self.now)
                    run.attempts[approval.step_key] = closed

    def owns(self, lease: Lease) -> bool:
        """Whether this lease holds."""
        return isinstance(self._held(lease), Kept)

    def _held(self, lease: Lease) -> Kept | FenceLost | RunNotFound:
        run = self.runs.get(lease.run_id)
        if run is None:
            return RunNotFound()
        held = protocol.Lease(lease.owner, lease.epoch, run.row.seq)
        return run if protocol.holds(self._rules, run.row, held) else FenceLost()

    def _write(self, run: Kept, kind: str) -> None:
        run.row = protocol.written(self._rules, run.row, kind)
        if run.row.status == RUNNING:
            self._alive(run)
        else:
            run.heartbeat_at = None

    def _alive(self, run: Kept) -> None:
        run.heartbeat_at = max(run.heartbeat_at or 0, self.now)

    # ------------------------------------------------------------ for comparison

    def seen(self, run_ids: Iterable[str]) -> dict[str, object]:
        """How runs stand, in words that a store's rows can be put in too."""
        return {run_id: self._seen(self.runs[run_id]) for run_id in run_ids}

    def _seen(self, run: Kept) -> object:
        last = run.row.last
        return {
            "status": run.status,
            "owner": run.owner,
            "heartbeat": run.heartbeat_at,
            "epoch": run.row.epoch,
            "write_seq": run.row.seq,
            "last_nonce": last.nonce if isinstance(last, OwnerId) else last,
            "takeovers": run.takeovers,
            "ready": run.ready_at,
            "cancelled": run.cancel_requested_at,
            "waiting": run.waiting,
            "started": run.started_at,
            "finished": run.finished_at,
            "attempts": {key: replace(attempt, recorded=None) for key, attempt in run.attempts.items()},
            "approvals": {
                key: approval for key, approval in self.approvals.items() if approval.run_id == run.given.run_id
            },
        }
