"""RunStore: runs and who owns them. ``RunContract`` is the contract's part, ``RunCommands`` the engine's.

The engine's part is about runs of workflows: started by a client, acquired by a worker, parked while they wait, settled
at their end. Each command of an owner is one write, which is refused once its lease is lost.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from belay_core.clock import Millis
from belay_core.errors import InvalidInput
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.commands import Cancel, Happened, Resolve, RetryRun, Start
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import RunSummary, WorkflowRun
from belay_core.stores.attempts import RunNotFound
from belay_core.stores.checks import require_durable, require_name, require_optional_text, require_text
from belay_core.stores.run_contract import FenceLost, NotFound, RequestCancelOutcome, RunContract
from belay_core.values.numbers import is_safe


@dataclass(frozen=True, slots=True)
class Started:
    """A new run is stored under this id.

    If the reply of the database was lost, a run of this id that another call stored in the same millisecond counts as
    this call's own.
    """

    run_id: RunId


@dataclass(frozen=True, slots=True)
class Found:
    """The run existed already, and is unchanged."""

    run_id: RunId
    status: RunStatus


@dataclass(frozen=True, slots=True)
class KeyTaken:
    """The idempotency key belongs to a run of another workflow."""

    run_id: RunId
    """The run that has the key."""
    workflow: str
    """The name of its workflow."""


@dataclass(frozen=True, slots=True)
class RunIdTaken:
    """The run id belongs to a run with another workflow, key or input."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The run is owned under this lease; the record is its state after that."""

    lease: Lease
    run: WorkflowRun


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease still holds.

    ``pending_signal_ms`` is the mark of a pending signal on the run: a decision, a cancel request or an operator's
    resolution that the owner has not read. None where there is none.
    """

    pending_signal_ms: Millis | None
    cancel_requested_at_ms: Millis | None


@dataclass(frozen=True, slots=True)
class PendingSignal:
    """Nothing was written: the run has a pending signal that its owner has not read."""


@dataclass(frozen=True, slots=True)
class RunParked:
    """The run is suspended and has no owner."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The run has ended, at this time."""

    finished_at_ms: Millis


@dataclass(frozen=True, slots=True)
class Resolved:
    """The operator's resolution is stored, and the run may continue (or has failed, if that was the resolution)."""

    resolved_at_ms: Millis


@dataclass(frozen=True, slots=True)
class NotInReview:
    """Nothing of this run waits for a resolution of this kind."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The run goes on from its records, from this time on; ``step_keys`` are the failed steps that are tried again."""

    retried_at_ms: Millis
    step_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotRetryable:
    """Nothing was written: the run has not failed or been cancelled, or is not one of a workflow."""

    status: RunStatus


@dataclass(frozen=True, slots=True)
class RunsWoken:
    """Runs that were due, and may be acquired now."""

    count: int
    """Their number."""


StartOutcome: TypeAlias = Started | Found | KeyTaken | RunIdTaken
"""The answers of ``RunStore.start``."""
RenewOutcome: TypeAlias = Renewed | FenceLost | RunNotFound
"""The answers of ``RunStore.renew``, one for each lease."""
RunParkOutcome: TypeAlias = RunParked | PendingSignal | FenceLost | RunNotFound
"""The answers of ``RunStore.park``."""
SettleOutcome: TypeAlias = Settled | PendingSignal | FenceLost | RunNotFound
"""The answers of ``RunStore.settle``."""
ResolveOutcome: TypeAlias = Resolved | NotInReview | NotFound
"""The answers of ``RunStore.resolve``."""

RetryOutcome: TypeAlias = Retried | NotRetryable | NotFound
"""The answers of ``RunStore.retry``."""


class RunCommands(Protocol):
    """The engine's part of ``RunStore``; defects raise ``RunStoreError``."""

    @abstractmethod
    async def start(self, command: commands.Start) -> StartOutcome:
        """Store a new run, or find the existing one of this key or id."""

    @abstractmethod
    async def acquire(self, command: commands.Acquire) -> tuple[Acquired, ...]:
        """Own due runs."""

    @abstractmethod
    async def wake(self, command: commands.Wake) -> RunsWoken:
        """Make due runs ready."""

    @abstractmethod
    async def renew(self, command: commands.Renew) -> tuple[RenewOutcome, ...]:
        """Renew leases, in one statement; outcomes in the order of the leases."""

    @abstractmethod
    async def park(self, command: commands.Park) -> RunParkOutcome:
        """Suspend the run."""

    @abstractmethod
    async def settle(self, command: commands.Settle) -> SettleOutcome:
        """End the run."""

    @abstractmethod
    async def cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        """Request the cancel of a run."""

    @abstractmethod
    async def resolve(self, command: commands.Resolve) -> ResolveOutcome:
        """Store an operator's resolution of a run in review."""

    @abstractmethod
    async def retry(self, command: commands.RetryRun) -> RetryOutcome:
        """Let a failed or cancelled run go on from its records; what is recorded of it stays."""

    @abstractmethod
    async def find(self, run_id: RunId) -> WorkflowRun | None:
        """One run with its payloads."""

    @abstractmethod
    async def list(self, command: commands.ListRuns) -> tuple[RunSummary, ...]:
        """A page of runs without payloads, the newest first."""

    @abstractmethod
    async def running_owners(self, host_id: str) -> tuple[OwnerId, ...]:
        """The distinct owners of running runs on this host."""


class RunStore(RunContract, RunCommands, Protocol):
    """Runs: the contract's operations and the engine's; defects raise ``RunStoreError``."""


MOST_URGENT: Final = 2**31 - 1
"""The largest priority; the smallest is its negative."""

_MOMENT: Final = "must be a whole number of milliseconds from 0 to 2^53 - 1"


def check_start(command: Start) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    require_durable("run_id", command.run_id)
    require_name("workflow", command.workflow)
    require_name("version", command.version)
    require_text("input", command.input)
    if command.idempotency_key is not None:
        require_name("idempotency_key", command.idempotency_key)
    if type(command.priority) is not int or abs(command.priority) > MOST_URGENT:
        raise InvalidInput("priority", "must be a whole number from -2147483647 to 2147483647")
    if command.run_at_ms is not None and not is_safe(command.run_at_ms):
        raise InvalidInput("run_at_ms", _MOMENT)
    require_optional_text("trace", command.trace)


def check_cancel(command: Cancel) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    require_durable("run_id", command.run_id)
    if command.by is not None:
        require_durable("by", command.by)


def check_resolve(command: Resolve) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    require_durable("run_id", command.run_id)
    require_durable("by", command.by)
    require_optional_text("step_key", command.step_key)
    if isinstance(command.resolution, Happened):
        require_text("outcome", command.resolution.outcome)


def check_retry(command: RetryRun) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    require_durable("run_id", command.run_id)
    require_durable("by", command.by)
    require_optional_text("reason", command.reason)
