"""The change feed, watched."""

from collections.abc import Sequence

from typing_extensions import override

from belay_core.ids import RunId
from belay_core.outcomes.changes import CancellationOutcome, ChangesPage, ChangesSinceOutcome, ListOutcome
from belay_core.records.changes import CancellationView, FeedHead, FeedPosition, RunFilters, RunsPage, SnapshotBatch
from belay_core.stores.changes import Changes
from belay_core.telemetry import names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Poll, Watch


class ObservedChanges(Changes):
    """A feed that does what the one it is given does, and leaves a span of it.

    Followers ask ``current`` and ``changes_since`` again and again: the one leaves a span only where it failed, the
    other also where something had changed.
    """

    def __init__(self, changes: Changes, instruments: Instruments) -> None:
        self._changes = changes
        self._instruments = instruments

    @override
    async def current(self) -> FeedHead:
        with Poll(self._instruments, names.CHANGES_CURRENT):
            return await self._changes.current()

    @override
    async def changes_since(self, source: str, position: FeedPosition, limit: int = 100) -> ChangesSinceOutcome:
        with Poll(self._instruments, names.CHANGES_SINCE) as seen:
            answer = await self._changes.changes_since(source, position, limit)
            if isinstance(answer, ChangesPage):
                seen.found(len(answer.changes))
                return answer
            # Told once: nothing goes on before it is seen to.
            seen.found(1)
            return seen(answer)

    @override
    async def snapshot(self, run_ids: Sequence[RunId]) -> SnapshotBatch:
        with Watch(self._instruments, names.CHANGES_SNAPSHOT) as seen:
            batch = await self._changes.snapshot(run_ids)
            seen.found(len(batch.runs))
            return batch

    @override
    async def list_runs(
        self, filters: RunFilters | None = None, limit: int = 100, cursor: str | None = None
    ) -> ListOutcome:
        with Watch(self._instruments, names.CHANGES_LIST_RUNS) as seen:
            answer = await self._changes.list_runs(filters, limit, cursor)
            if not isinstance(answer, RunsPage):
                return seen(answer)
            seen.found(len(answer.runs))
            return answer

    @override
    async def cancellation(self, run_id: RunId) -> CancellationOutcome:
        with Watch(self._instruments, names.CHANGES_CANCELLATION, lambda: {names.RUN_ID: run_id}) as seen:
            answer = await self._changes.cancellation(run_id)
            return answer if isinstance(answer, CancellationView) else seen(answer)
