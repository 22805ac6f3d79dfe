"""Faults at the seam between engine and store: at the n-th call something goes wrong, or somebody comes between.

A first run counts the calls when nothing happens; then the same run is made once for every call and every fault::

    store = FaultStore(stores.engine, at=7, fault=reply_lost())
    async with Worker(replace(stores, engine=store), [flow], telemetry=False, background=False) as worker:
        ...
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from belay_core import commands
from belay_core.errors import EngineStoreError
from belay_core.ids import RunId
from belay_core.moments import Clock
from belay_core.outcomes import engine as outcomes
from belay_core.outcomes.runs import RequestCancelOutcome
from belay_core.records.owner import OwnerId
from belay_core.records.workflow_run import ApprovalRecord, JournalEntry, RunRecord, RunSummary
from belay_core.stores.engine_store import EngineStore

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at a call: ``strike`` is awaited before the command is sent, or after it was executed."""

    name: str
    before: bool
    strike: Callable[["FaultStore", str], Awaitable[None]]


def unreachable() -> Fault:
    """The database cannot be reached: the command is not executed."""
    return Fault("unreachable", before=True, strike=_fail)


def reply_lost() -> Fault:
    """The command is executed, and its sender hears of a failure."""
    return Fault("reply_lost", before=False, strike=_fail)


def hanging(*, before: bool = True) -> Fault:
    """The call is never answered; it ends when it is cancelled."""

    async def hang(_store: "FaultStore", _method: str) -> None:
        await asyncio.get_running_loop().create_future()

    return Fault("hanging", before=before, strike=hang)


def delayed(clock: Clock, seconds: float, *, before: bool = True) -> Fault:
    """The command, or its reply, is under way for so long."""

    async def wait(_store: "FaultStore", _method: str) -> None:
        await clock.sleep(seconds)

    return Fault("delayed", before=before, strike=wait)


def killed(*, before: bool) -> Fault:
    """The worker's process is gone, just before it sends the command or before it hears the answer."""

    async def kill(store: "FaultStore", method: str) -> None:
        store.end()
        await _fail(store, method)

    return Fault("killed_before" if before else "killed_after", before=before, strike=kill)


def meanwhile(name: str, action: Callable[[], Awaitable[object]], *, before: bool) -> Fault:
    """Somebody else comes between: the action is complete before the command is sent, or before it is answered."""

    async def act(_store: "FaultStore", _method: str) -> None:
        await action()

    return Fault(name, before=before, strike=act)


async def _fail(_store: "FaultStore", method: str) -> NoReturn:
    raise EngineStoreError("persistence_failed", method, "a fault that was asked for")


class FaultStore(EngineStore):
    """An engine's store whose ``at``-th call, counted from 1, meets a fault; every other call goes through.

    With ``of`` only the calls of one method are counted, and with ``times`` so many calls in a row are struck. Once
    its process is gone (``end``), it sends nothing more and answers nothing more.
    """

    def __init__(
        self, inner: EngineStore, *, at: int = 0, fault: Fault | None = None, of: str | None = None, times: int = 1
    ) -> None:
        self.calls: list[str] = []
        """The methods called so far, in order."""
        self.struck = False
        """Whether the fault has happened."""
        self.gone = False
        self._inner = inner
        self._fault = fault
        self._of = of
        self._struck_calls = range(at, at + times)
        self._counted = 0

    def end(self) -> None:
        """The process is gone; whoever drives the worker has it drop what is in its memory (``drive.vanish``)."""
        self.gone = True

    async def _through(self, method: str, send: Callable[[], Awaitable[A]]) -> A:
        if self.gone:
            await _fail(self, method)
        self.calls.append(method)
        fault = self._fault if self._is_struck(method) else None
        if fault is not None and fault.before:
            self.struck = True
            await fault.strike(self, method)
        answer = await send()
        if fault is not None and not fault.before:
            self.struck = True
            await fault.strike(self, method)
        if self.gone:
            await _fail(self, method)
        return answer

    def _is_struck(self, method: str) -> bool:
        if self._of not in (None, method):
            return False
        self._counted += 1
        return self._counted in self._struck_calls

    async def renew(self, command: commands.Renew) -> tuple[outcomes.RenewOutcome, ...]:
        """As the store within."""
        return await self._through("renew", lambda: self._inner.renew(command))

    async def record(self, command: commands.Record) -> outcomes.RecordOutcome:
        """As the store within."""
        return await self._through("record", lambda: self._inner.record(command))

    async def ask(self, command: commands.Ask) -> outcomes.AskOutcome:
        """As the store within."""
        return await self._through("ask", lambda: self._inner.ask(command))

    async def sleep(self, command: commands.Sleep) -> outcomes.SleepOutcome:
        """As the store within."""
        return await self._through("sleep", lambda: self._inner.sleep(command))

    async def withdraw(self, command: commands.Withdraw) -> outcomes.WithdrawOutcome:
        """As the store within."""
        return await self._through("withdraw", lambda: self._inner.withdraw(command))

    async def lapse(self, command: commands.Lapse) -> outcomes.LapseOutcome:
        """As the store within."""
        return await self._through("lapse", lambda: self._inner.lapse(command))

    async def park(self, command: commands.Park) -> outcomes.ParkOutcome:
        """As the store within."""
        return await self._through("park", lambda: self._inner.park(command))

    async def settle(self, command: commands.Settle) -> outcomes.SettleOutcome:
        """As the store within."""
        return await self._through("settle", lambda: self._inner.settle(command))

    async def start(self, command: commands.Start) -> outcomes.StartOutcome:
        """As the store within."""
        return await self._through("start", lambda: self._inner.start(command))

    async def acquire(self, command: commands.Acquire) -> tuple[outcomes.Acquired, ...]:
        """As the store within."""
        return await self._through("acquire", lambda: self._inner.acquire(command))

    async def wake(self, command: commands.Wake) -> outcomes.Woken:
        """As the store within."""
        return await self._through("wake", lambda: self._inner.wake(command))

    async def decide(self, command: commands.Decide) -> outcomes.DecideOutcome:
        """As the store within."""
        return await self._through("decide", lambda: self._inner.decide(command))

    async def cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        """As the store within."""
        return await self._through("cancel", lambda: self._inner.cancel(command))

    async def resolve(self, command: commands.Resolve) -> outcomes.ResolveOutcome:
        """As the store within."""
        return await self._through("resolve", lambda: self._inner.resolve(command))

    async def history(self, command: commands.History) -> tuple[commands.RunHistory, ...]:
        """As the store within."""
        return await self._through("history", lambda: self._inner.history(command))

    async def find_run(self, run_id: RunId) -> RunRecord | None:
        """As the store within."""
        return await self._through("find_run", lambda: self._inner.find_run(run_id))

    async def list_runs(self, command: commands.ListRuns) -> tuple[RunSummary, ...]:
        """As the store within."""
        return await self._through("list_runs", lambda: self._inner.list_runs(command))

    async def list_approvals(self, command: commands.ListApprovals) -> tuple[ApprovalRecord, ...]:
        """As the store within."""
        return await self._through("list_approvals", lambda: self._inner.list_approvals(command))

    async def find_approval(self, approval_id: str) -> ApprovalRecord | None:
        """As the store within."""
        return await self._through("find_approval", lambda: self._inner.find_approval(approval_id))

    async def journal(self, run_id: RunId) -> tuple[JournalEntry, ...]:
        """As the store within."""
        return await self._through("journal", lambda: self._inner.journal(run_id))

    async def running_owners(self, host_id: str) -> tuple[OwnerId, ...]:
        """As the store within."""
        return await self._through("running_owners", lambda: self._inner.running_owners(host_id))
