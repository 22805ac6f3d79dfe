"""Reads of one moment, watched: their spans are those of the run store's reads."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from typing_extensions import override

from belay_core.ids import RunId
from belay_core.records.run import RunRow
from belay_core.stores.snapshots import SnapshotReads, Snapshots
from belay_core.telemetry import names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Watch


class ObservedSnapshots(Snapshots):
    """Views that show what the ones they are given show, and leave a span of each read."""

    def __init__(self, snapshots: Snapshots, instruments: Instruments) -> None:
        self._snapshots = snapshots
        self._instruments = instruments

    @override
    @asynccontextmanager
    async def open(self) -> AsyncGenerator[SnapshotReads]:
        async with self._snapshots.open() as reads:
            yield _ObservedReads(reads, self._instruments)


class _ObservedReads(SnapshotReads):
    """The reads."""

    def __init__(self, reads: SnapshotReads, instruments: Instruments) -> None:
        self._reads = reads
        self._instruments = instruments

    @override
    async def get(self, run_id: RunId) -> RunRow:
        with Watch(self._instruments, names.RUN_GET, lambda: {names.RUN_ID: run_id}):
            return await self._reads.get(run_id)

    @override
    async def lineage(self, run_id: RunId) -> tuple[RunRow, ...]:
        with Watch(self._instruments, names.RUN_LINEAGE, lambda: {names.RUN_ID: run_id}):
            return await self._reads.lineage(run_id)

    @override
    async def latest_round(self, run_id: RunId) -> RunRow:
        with Watch(self._instruments, names.RUN_LATEST_ROUND, lambda: {names.RUN_ID: run_id}):
            return await self._reads.latest_round(run_id)
