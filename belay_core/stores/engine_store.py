"""EngineStore: the engine's commands over the same tables (kernel 1 and 26)."""

from abc import abstractmethod
from typing import Protocol

from belay_core import commands
from belay_core.ids import RunId
from belay_core.outcomes import engine as outcomes
from belay_core.outcomes.runs import RequestCancelOutcome
from belay_core.records.owner import OwnerId
from belay_core.records.workflow_run import ApprovalRecord, JournalEntry, RunRecord, RunSummary


class OwnedCommands(Protocol):
    """What the owner of a run asks for; each is one write that holds only while the lease does."""

    @abstractmethod
    async def renew(self, command: commands.Renew) -> tuple[outcomes.RenewOutcome, ...]:
        """Keep leases, in one statement; answers stand in the order of the leases."""

    @abstractmethod
    async def record(self, command: commands.Record) -> outcomes.RecordOutcome:
        """Store attempts, all or none."""

    @abstractmethod
    async def ask(self, command: commands.Ask) -> outcomes.AskOutcome:
        """Open a gate."""

    @abstractmethod
    async def sleep(self, command: commands.Sleep) -> outcomes.SleepOutcome:
        """Begin a sleep."""

    @abstractmethod
    async def withdraw(self, command: commands.Withdraw) -> outcomes.WithdrawOutcome:
        """Close a gate nobody wants any more."""

    @abstractmethod
    async def lapse(self, command: commands.Lapse) -> outcomes.LapseOutcome:
        """Close a gate nobody decided in time."""

    @abstractmethod
    async def park(self, command: commands.Park) -> outcomes.ParkOutcome:
        """Suspend the run."""

    @abstractmethod
    async def settle(self, command: commands.Settle) -> outcomes.SettleOutcome:
        """End the run."""


class UnownedCommands(Protocol):
    """What clients, operators and approvers ask for, and how workers come to own runs."""

    @abstractmethod
    async def start(self, command: commands.Start) -> outcomes.StartOutcome:
        """Store a new run, or find the one that is meant."""

    @abstractmethod
    async def acquire(self, command: commands.Acquire) -> tuple[outcomes.Acquired, ...]:
        """Own runs."""

    @abstractmethod
    async def wake(self, command: commands.Wake) -> outcomes.Woken:
        """Make due runs ready."""

    @abstractmethod
    async def decide(self, command: commands.Decide) -> outcomes.DecideOutcome:
        """Answer a gate; one decision counts."""

    @abstractmethod
    async def cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        """Ask a run to stop."""

    @abstractmethod
    async def resolve(self, command: commands.Resolve) -> outcomes.ResolveOutcome:
        """Store an operator's word on a run in review."""


class EngineReads(Protocol):
    """Reads without a write transaction."""

    @abstractmethod
    async def history(self, command: commands.History) -> tuple[commands.RunHistory, ...]:
        """Runs with everything recorded of them, in the order asked for; unknown ones are left out."""

    @abstractmethod
    async def find_run(self, run_id: RunId) -> RunRecord | None:
        """One run with its payloads."""

    @abstractmethod
    async def list_runs(self, command: commands.ListRuns) -> tuple[RunSummary, ...]:
        """A page of runs without payloads, the newest first."""

    @abstractmethod
    async def list_approvals(self, command: commands.ListApprovals) -> tuple[ApprovalRecord, ...]:
        """Undecided approvals of runs that are not over, the oldest first."""

    @abstractmethod
    async def find_approval(self, approval_id: str) -> ApprovalRecord | None:
        """One approval, decided or not."""

    @abstractmethod
    async def journal(self, run_id: RunId) -> tuple[JournalEntry, ...]:
        """The events of a run in order; ownership facts (kinds ``ownership.*``) are a stream of their own."""

    @abstractmethod
    async def running_owners(self, host_id: str) -> tuple[OwnerId, ...]:
        """The distinct owners of running runs on this host."""


class EngineStore(OwnedCommands, UnownedCommands, EngineReads, Protocol):
    """Everything the engine, its client and its faces need; defects raise ``EngineStoreError``."""
