"""The journal, watched."""

from typing_extensions import override

from belay_core.ids import RunId
from belay_core.outcomes.journal import AppendOutcome
from belay_core.records.attempt import JsonValue
from belay_core.records.owner import OwnerId
from belay_core.records.workflow_run import JournalEntry
from belay_core.stores.journal import Journal
from belay_core.telemetry import names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Watch


class ObservedJournal(Journal):
    """A journal that does what the one it is given does, and leaves a span of it; kinds and facts are not shown."""

    def __init__(self, journal: Journal, instruments: Instruments) -> None:
        self._journal = journal
        self._instruments = instruments

    @override
    async def append(self, run_id: RunId, owner: OwnerId, kind: str, facts: JsonValue) -> AppendOutcome:
        def identity() -> dict[str, str]:
            return {names.RUN_ID: run_id, names.OWNER_HOST_ID: owner.host_id}

        with Watch(self._instruments, names.JOURNAL_APPEND, identity) as seen:
            return seen(await self._journal.append(run_id, owner, kind, facts))

    @override
    async def read(self, run_id: RunId, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        with Watch(self._instruments, names.JOURNAL_READ, lambda: {names.RUN_ID: run_id}) as seen:
            return seen.listed(await self._journal.read(run_id, after, limit))

    @override
    async def ownership(self, run_id: RunId, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        with Watch(self._instruments, names.JOURNAL_OWNERSHIP, lambda: {names.RUN_ID: run_id}) as seen:
            return seen.listed(await self._journal.ownership(run_id, after, limit))
