"""Observed stores: one table of operations a store, and one generic wrapper.

The row of an operation says which attributes its span has, where its outcomes are counted, and what of the outcome
is noted. ``PollSpan`` is for operations that poll: it leaves a span only if something was found or failed.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias, TypeVar

from typing_extensions import override

from belay_core.records import commands
from belay_core.records.attempt import Attempt, AttemptId, AttemptStoreOptions, FinishAttempt
from belay_core.records.changes import CancellationView, RunsPage
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.stores.approvals import ApprovalStore
from belay_core.stores.attempts import AttemptContract, AttemptStore
from belay_core.stores.changes import Changes, ChangesPage
from belay_core.stores.journal import Journal
from belay_core.stores.retention import Retention
from belay_core.stores.run_contract import RunContract
from belay_core.stores.runs import RunStore
from belay_core.stores.snapshots import SnapshotReads, Snapshots
from belay_core.stores.waiting import WaitingStore
from belay_core.stores.writer import Hook, Transaction, Writer
from belay_core.telemetry import names, outcome_counts
from belay_core.telemetry.current_span import is_idle
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.operation_span import OperationSpan, PollSpan
from belay_core.telemetry.outcome_counts import Counted
from belay_core.values.numbers import is_safe
from belay_core.values.text import is_durable

T = TypeVar("T")
Attributes: TypeAlias = Mapping[str, str | int]

_TRUSTED: Final = 17
_RUNS: Final = "belay.run_store"
_ATTEMPTS: Final = "belay.attempt_store"
_APPROVALS: Final = "belay.approval_store"
_WRITE: Final = "belay.writer.write"


def _no_attributes(*_given: Any) -> Attributes:
    return {}


def _plain(_seen: OperationSpan, answer: Any) -> None:
    """A result that is no outcome."""


def _outcome(seen: OperationSpan, answer: Any) -> None:
    seen(answer)


def _each(seen: OperationSpan, answer: Any) -> None:
    seen.each(answer)


def _rows(seen: OperationSpan, answer: Any) -> None:
    seen.listed(answer)


@dataclass(frozen=True, slots=True)
class Operation:
    """How one operation is observed: ``attributes`` and ``counted`` get its arguments, ``seen`` its result."""

    attributes: Callable[..., Attributes] = _no_attributes
    seen: Callable[[OperationSpan, Any], None] = _plain
    counted: Counted | Callable[..., Counted | None] | None = None
    watch: type[OperationSpan] = OperationSpan
    units: Callable[..., int] | None = None


class Observed:
    """A wrapper of a store that forwards its operations, with spans and counts."""

    def __init__(self, store: Any, instruments: Instruments) -> None:
        self.store = store
        self.instruments = instruments


def observe(protocol: Any, prefix: str, operations: Mapping[str, Operation], base: type[Observed] = Observed) -> Any:
    """A class that observes a store of this protocol; operations that ``base`` lacks are generated from their rows."""
    methods = {
        name: _method(f"{prefix}.{name}", getattr(protocol, name), operations[name])
        for name in protocol.__abstractmethods__
        if not hasattr(base, name)
    }
    return type(f"Observed{protocol.__name__}", (base, protocol), methods)


def _method(span: str, function: Callable[..., Any], operation: Operation) -> Callable[..., Awaitable[Any]]:
    name, parameters = function.__name__, tuple(inspect.signature(function).parameters)[1:]
    attributes, note, counted = operation.attributes, operation.seen, operation.counted
    watch, units = operation.watch, operation.units

    async def method(self: Observed, *given: Any, **named: Any) -> Any:
        # The table's functions get the arguments by position.
        each = (*given, *(named[key] for key in parameters[len(given) :] if key in named)) if named else given
        table = counted(*each) if callable(counted) else counted
        count = 1 if units is None else units(*each)
        with watch(self.instruments, span, lambda: attributes(*each), table, count) as seen:
            answer = await getattr(self.store, name)(*given, **named)
            note(seen, answer)
            return answer

    method.__name__ = name
    return method


def _first_as(key: str) -> Callable[..., Attributes]:
    """The first argument as an attribute under this key."""

    def attributes(value: Any, *_more: Any) -> Attributes:
        return {key: value}

    return attributes


_run: Final = _first_as(names.RUN_ID)


def _owned(run_id: Any, owner: OwnerId, *_more: Any) -> Attributes:
    return {names.RUN_ID: run_id, names.OWNER_HOST_ID: owner.host_id}


def _taken(run_id: Any, expected: Any, owner: OwnerId, *_more: Any) -> Attributes:  # noqa: ARG001
    return _owned(run_id, owner)


def _parked_by(run_id: Any, waiting: Any, owner: OwnerId) -> Attributes:  # noqa: ARG001
    return _owned(run_id, owner)


def _claimant(run_id: Any, claimant: OwnerId, *_more: Any) -> Attributes:
    return {names.RUN_ID: run_id, names.CLAIMANT_HOST_ID: claimant.host_id}


def _claimed(run_id: Any, expected: Any, claimant: OwnerId, *_more: Any) -> Attributes:  # noqa: ARG001
    return _claimant(run_id, claimant)


def _recovered(run_id: Any, stale: Any, claimed_at: Any, observer: OwnerId, *_more: Any) -> Attributes:  # noqa: ARG001
    return {names.RUN_ID: run_id, names.OBSERVER_HOST_ID: observer.host_id}


def _moved(run_id: Any, owner: OwnerId, to_status: Any, *_more: Any) -> Attributes:
    return {**_owned(run_id, owner), names.TO: outcome_counts.to_status(to_status)}


def _lease(lease: Lease) -> dict[str, str | int]:
    return {names.RUN_ID: lease.run_id, names.OWNER_HOST_ID: lease.owner.host_id, names.EPOCH: lease.epoch}


def _step(command: commands.Ask | commands.Sleep | commands.Withdraw | commands.Lapse) -> dict[str, str | int]:
    attempt = command.attempt
    return {**_lease(command.lease), names.STEP_KEY: attempt.step_key, names.ATTEMPT: attempt.attempt}


def _renewed(command: commands.Renew) -> Attributes:
    """The host of the leases; a worker renews only its own."""
    return {names.OWNER_HOST_ID: command.leases[0].owner.host_id} if command.leases else {}


def _recorded(command: commands.Record) -> Attributes:
    attributes = {**_lease(command.lease), names.COUNT: len(command.attempts)}
    if len(command.attempts) == 1:
        attributes[names.STEP_KEY] = command.attempts[0].step_key
        attributes[names.ATTEMPT] = command.attempts[0].attempt
    return attributes


def _asked(command: commands.Ask) -> Attributes:
    return {**_step(command), names.APPROVAL_ID: command.approval.approval_id}


def _lapsed(command: commands.Lapse) -> Attributes:
    return {**_step(command), names.APPROVAL_ID: command.approval_id}


def _parked(command: commands.Park) -> Attributes:
    to = str(RunStatus.SUSPENDED)
    return {**_lease(command.lease), names.TO: to, names.WAITING_REASON: command.waiting.reason}


def _settled(command: commands.Settle) -> Attributes:
    return {**_lease(command.lease), names.TO: outcome_counts.to_status(command.status)}


def _started(command: commands.Start) -> Attributes:
    return {names.RUN_ID: command.run_id, names.WORKFLOW: command.workflow}


def _decided(command: commands.Decide) -> Attributes:
    return {names.APPROVAL_ID: command.approval_id, names.DECISION: command.decision}


def _resolved(command: commands.Resolve) -> Attributes:
    return {names.RUN_ID: command.run_id, names.RESOLUTION: outcome_counts.outcome_name(type(command.resolution))}


def _read(command: commands.History) -> Attributes:
    """The run that is read, if it is one."""
    return {names.RUN_ID: command.run_ids[0]} if len(command.run_ids) == 1 else {}


def _acquiring(command: commands.Acquire) -> Attributes:
    return {names.OWNER_HOST_ID: command.owner.host_id}


def _cancelled(command: commands.Cancel) -> Attributes:
    return {names.RUN_ID: command.run_id}


def _leases(command: commands.Renew) -> int:
    return len(command.leases)


def _counted_settle(command: commands.Settle) -> Counted | None:
    return outcome_counts.settle(command.status)


def _counted_resolution(command: commands.Resolve) -> Counted | None:
    return outcome_counts.resolve(command.resolution)


def _woken(seen: OperationSpan, woken: Any) -> None:
    seen(woken)
    seen.found(woken.count)


_READS: Final[Mapping[str, Operation]] = dict.fromkeys(("get", "lineage", "latest_round"), Operation(_run))


def _counted_transition(_run_id: Any, _owner: Any, to_status: Any, *_more: Any) -> Counted | None:
    return outcome_counts.transition_owned(to_status)


_HEARD: Final = Operation(_owned, _outcome, outcome_counts.HEARTBEAT)
RUNS: Final[Mapping[str, Operation]] = {
    **_READS,
    "create": Operation(_run),
    "request_cancel": Operation(_run, _outcome),
    "request_cancel_lineage": Operation(_run, _outcome),
    "acknowledge_cancel": Operation(_owned),
    "claim_and_own": Operation(_taken, _outcome, outcome_counts.CLAIM_AND_OWN),
    "claim": Operation(_claimed, _outcome, outcome_counts.CLAIM),
    "activate": Operation(_claimant, _outcome, outcome_counts.ACTIVATE),
    "abandon_claim": Operation(_claimant, _outcome, outcome_counts.ABANDON_CLAIM),
    "recover_claim": Operation(_recovered, _outcome, outcome_counts.RECOVER_CLAIM),
    "steal": Operation(_claimed, _outcome, outcome_counts.STEAL),
    "reconfirm": _HEARD,
    "heartbeat": _HEARD,
    "transition_owned": Operation(_moved, _outcome, _counted_transition),
    "start": Operation(_started, _outcome),
    "acquire": Operation(_acquiring, _each, outcome_counts.ACQUIRE, PollSpan),
    "wake": Operation(seen=_woken, watch=PollSpan),
    "renew": Operation(_renewed, _each, outcome_counts.RENEW, PollSpan, _leases),
    "park": Operation(_parked, _outcome, outcome_counts.PARK),
    "settle": Operation(_settled, _outcome, _counted_settle),
    "cancel": Operation(_cancelled, _outcome),
    "resolve": Operation(_resolved, _outcome, _counted_resolution),
    "retry": Operation(_cancelled, _outcome, outcome_counts.RETRY),
    "find": Operation(_run, watch=PollSpan),
    "list": Operation(seen=_rows),
    "running_owners": Operation(_first_as(names.OWNER_HOST_ID), watch=PollSpan),
}


def _attempt(attempt: AttemptId | Attempt | FinishAttempt) -> dict[str, str | int]:
    return {
        names.RUN_ID: attempt.run_id,
        names.STEP_KEY_DIGEST: attempt.step_key_digest,
        names.ATTEMPT: attempt.attempt,
    }


def _written(attempt: AttemptId | Attempt | FinishAttempt, *more: Any) -> Attributes:
    return {**_attempt(attempt), names.OWNER_HOST_ID: more[-1].host_id}


def _attempt_heartbeat(run_id: Any, digest: str, attempt: int, owner: OwnerId, *_more: Any) -> Attributes:
    """Without invalid ids: a heartbeat is annotated before they are checked (run store 12.2)."""
    given = _written(AttemptId(run_id, digest, attempt), owner)
    return {
        key: value for key, value in given.items() if (is_safe(value) if key == names.ATTEMPT else is_durable(value))
    }


ATTEMPTS: Final[Mapping[str, Operation]] = {
    "put": Operation(_written, _outcome),
    "get": Operation(_attempt),
    "finish": Operation(_written, _outcome),
    "heartbeat": Operation(_attempt_heartbeat, _outcome),
    "patch": Operation(_written, _outcome),
    "record": Operation(_recorded, _outcome),
    "sleep": Operation(_step, _outcome),
    "history": Operation(_read, _rows),
}
APPROVALS: Final[Mapping[str, Operation]] = {
    "ask": Operation(_asked, _outcome),
    "withdraw": Operation(_step, _outcome),
    "lapse": Operation(_lapsed, _outcome),
    "decide": Operation(_decided, _outcome),
    "list": Operation(seen=_rows),
    "find": Operation(_first_as(names.APPROVAL_ID)),
}


WAITING: Final[Mapping[str, Operation]] = {
    "park": Operation(_parked_by, _outcome),
    "wake": Operation(_run, _outcome),
    "waiting": Operation(_run),
    "waiting_runs": Operation(seen=_rows, watch=PollSpan),
}
JOURNAL: Final[Mapping[str, Operation]] = {
    "append": Operation(_owned, _outcome),
    "read": Operation(_run, _rows),
    "ownership": Operation(_run, _rows),
}


def _page(kind: type, rows: Callable[[Any], int | None]) -> Callable[[OperationSpan, Any], None]:
    def note(seen: OperationSpan, answer: Any) -> None:
        count = rows(answer) if isinstance(answer, kind) else None
        if count is not None:
            seen.found(count)
        elif not isinstance(answer, kind):
            # Noted once: the caller has to rebuild before it continues.
            if kind is ChangesPage:
                seen.found(1)
            seen(answer)

    return note


CHANGES: Final[Mapping[str, Operation]] = {
    "current": Operation(watch=PollSpan),
    "changes_since": Operation(seen=_page(ChangesPage, lambda page: len(page.changes)), watch=PollSpan),
    "snapshot": Operation(seen=lambda seen, batch: seen.found(len(batch.runs))),
    "list_runs": Operation(seen=_page(RunsPage, lambda page: len(page.runs))),
    "cancellation": Operation(_run, _page(CancellationView, lambda _view: None)),
}
RETENTION: Final[Mapping[str, Operation]] = {"delete": Operation(_run, _outcome)}


class _Attempts(Observed):
    """``record`` is the most frequent: without a recorded span the store is called directly."""

    def __init__(self, store: AttemptContract, instruments: Instruments) -> None:
        super().__init__(store, instruments)
        self._unseen = 0

    def make_with(self, options: AttemptStoreOptions) -> Self:
        return type(self)(self.store.make_with(options), self.instruments)

    async def record(self, command: commands.Record) -> Any:
        return await (self.store.record if self._is_unseen() else self._record)(command)

    async def _record(self, command: commands.Record) -> Any:
        with OperationSpan(self.instruments, f"{_ATTEMPTS}.record", lambda: _recorded(command)) as seen:
            return seen(await self.store.record(command))

    def _is_unseen(self) -> bool:
        """Whether no span would be recorded; checked again after some records, since a provider may be set later."""
        if self._unseen == 0:
            self._unseen = _TRUSTED if is_idle(self.instruments.tracer) else 1
        self._unseen -= 1
        return self._unseen > 0


class _Approvals(Observed):
    def __init__(self, store: ApprovalStore, instruments: Instruments, runs: RunStore) -> None:
        super().__init__(store, instruments)
        self._runs = runs

    async def decide(self, command: commands.Decide) -> Any:
        """Decide; the span belongs to the trace of the request, with a link to that of the run."""
        with OperationSpan(self.instruments, f"{_APPROVALS}.decide", lambda: _decided(command)) as seen:
            if seen.recording:
                seen.joined(await self._trace_of(command))
            return seen(await self.store.decide(command))

    async def _trace_of(self, command: commands.Decide) -> str | None:
        """The trace of the approval's run; None if that cannot be read, which must not prevent the decision.

        Read before the decision: a caller that is cancelled during this read has decided nothing.
        """
        with suppress(Exception):
            approval = await self.store.find(command.approval_id)
            run = None if approval is None else await self._runs.find(approval.run_id)
            return None if run is None else run.trace
        return None


ObservedRunStore: Final[Callable[[RunStore, Instruments], RunStore]] = observe(RunStore, _RUNS, RUNS)
_ObservedRunContract: Final[Callable[[RunContract, Instruments], RunContract]] = observe(RunContract, _RUNS, RUNS)
ObservedAttemptStore: Final[Callable[[AttemptStore, Instruments], AttemptStore]] = observe(
    AttemptStore, _ATTEMPTS, ATTEMPTS, _Attempts
)
_ObservedAttemptContract: Final[Callable[[AttemptContract, Instruments], AttemptContract]] = observe(
    AttemptContract, _ATTEMPTS, ATTEMPTS, _Attempts
)
ObservedApprovalStore: Final[Callable[[ApprovalStore, Instruments, RunStore], ApprovalStore]] = observe(
    ApprovalStore, _APPROVALS, APPROVALS, _Approvals
)
ObservedWaitingStore: Final[Callable[[WaitingStore, Instruments], WaitingStore]] = observe(
    WaitingStore, "belay.waiting_store", WAITING
)
ObservedJournal: Final[Callable[[Journal, Instruments], Journal]] = observe(Journal, "belay.journal", JOURNAL)
ObservedChanges: Final[Callable[[Changes, Instruments], Changes]] = observe(Changes, "belay.changes", CHANGES)
ObservedRetention: Final[Callable[[Retention, Instruments], Retention]] = observe(
    Retention, "belay.retention", RETENTION
)
_ObservedReads: Final[Callable[[SnapshotReads, Instruments], SnapshotReads]] = observe(SnapshotReads, _RUNS, _READS)
"""Reads of a snapshot: their spans are those of the run store's reads."""


class ObservedSnapshots(Observed, Snapshots):
    """Snapshots whose reads are observed."""

    @override
    @asynccontextmanager
    async def open(self) -> AsyncGenerator[SnapshotReads]:
        async with self.store.open() as reads:
            yield _ObservedReads(reads, self.instruments)


class ObservedWriter(Observed, Writer):
    """The write boundary.

    A run that has ended is counted when the outermost write has committed: an attempt that is rolled back or repeated
    has ended no run.
    """

    def __init__(self, writer: Writer, instruments: Instruments) -> None:
        super().__init__(writer, instruments)
        writer.on_retry(instruments.count_retry)
        instruments.observe_queue(writer)

    @override
    async def write(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        async def inside(transaction: Transaction) -> T:
            return await body(self._inside(transaction))

        with OperationSpan(self.instruments, _WRITE):
            answer: T = await self.store.write(inside)
            return answer

    @override
    def after_commit(self, hook: Hook) -> bool:
        return bool(self.store.after_commit(hook))

    @override
    def on_retry(self, listener: Hook) -> None:
        self.store.on_retry(listener)

    @property
    @override
    def queued(self) -> int:
        return int(self.store.queued)

    def _inside(self, transaction: Transaction) -> Transaction:
        tools = self.instruments.deferred(transaction.after_commit)
        return replace(
            transaction,
            runs=_ObservedRunContract(transaction.runs, tools),
            attempts=_ObservedAttemptContract(transaction.attempts, tools),
            waiting=ObservedWaitingStore(transaction.waiting, tools),
            journal=ObservedJournal(transaction.journal, tools),
            writer=ObservedWriter(transaction.writer, self.instruments),
        )


SPANS: Final = frozenset(
    {
        _WRITE,
        *(
            f"{prefix}.{name}"
            for prefix, operations in (
                (_RUNS, RUNS),
                (_ATTEMPTS, ATTEMPTS),
                (_APPROVALS, APPROVALS),
                ("belay.waiting_store", WAITING),
                ("belay.journal", JOURNAL),
                ("belay.changes", CHANGES),
                ("belay.retention", RETENTION),
            )
            for name in operations
        ),
    }
)
"""The names of all spans of store operations."""
