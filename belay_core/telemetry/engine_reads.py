"""What is read from the engine's store, watched."""

from typing_extensions import override

from belay_core import commands
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.workflow_run import ApprovalRecord, JournalEntry, RunRecord, RunSummary
from belay_core.stores.engine_store import EngineReads
from belay_core.telemetry import names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Poll, Watch


class ObservedEngineReads(EngineReads):
    """Reads, each done by the store it is given, with a span of it.

    ``find_run`` and ``running_owners`` are what waiting clients and idle workers look at again and again: they leave
    a span only where they fail.
    """

    def __init__(self, reads: EngineReads, instruments: Instruments) -> None:
        self._reads = reads
        self._instruments = instruments

    @override
    async def history(self, command: commands.History) -> tuple[commands.RunHistory, ...]:
        with Watch(self._instruments, names.ENGINE_HISTORY, lambda: _read(command)) as seen:
            return seen.listed(await self._reads.history(command))

    @override
    async def find_run(self, run_id: RunId) -> RunRecord | None:
        with Poll(self._instruments, names.ENGINE_FIND_RUN, lambda: {names.RUN_ID: run_id}):
            return await self._reads.find_run(run_id)

    @override
    async def list_runs(self, command: commands.ListRuns) -> tuple[RunSummary, ...]:
        with Watch(self._instruments, names.ENGINE_LIST_RUNS) as seen:
            return seen.listed(await self._reads.list_runs(command))

    @override
    async def list_approvals(self, command: commands.ListApprovals) -> tuple[ApprovalRecord, ...]:
        with Watch(self._instruments, names.ENGINE_LIST_APPROVALS) as seen:
            return seen.listed(await self._reads.list_approvals(command))

    @override
    async def find_approval(self, approval_id: str) -> ApprovalRecord | None:
        identity = {names.APPROVAL_ID: approval_id}
        with Watch(self._instruments, names.ENGINE_FIND_APPROVAL, lambda: identity):
            return await self._reads.find_approval(approval_id)

    @override
    async def journal(self, run_id: RunId) -> tuple[JournalEntry, ...]:
        with Watch(self._instruments, names.ENGINE_JOURNAL, lambda: {names.RUN_ID: run_id}) as seen:
            return seen.listed(await self._reads.journal(run_id))

    @override
    async def running_owners(self, host_id: str) -> tuple[OwnerId, ...]:
        with Poll(self._instruments, names.ENGINE_RUNNING_OWNERS, lambda: {names.OWNER_HOST_ID: host_id}):
            return await self._reads.running_owners(host_id)


def _read(command: commands.History) -> dict[str, str]:
    """The run that is read, where it is one."""
    return {names.RUN_ID: command.run_ids[0]} if len(command.run_ids) == 1 else {}
