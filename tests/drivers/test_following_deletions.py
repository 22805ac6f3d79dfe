"""A follower of the feed beside deletions, rebirths, writes held open and writes taken back."""

import asyncio
import contextlib
import random

import pytest

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.changes import START, DeletedRun, RunChange, RunView
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores.changes import ChangesPage

A = OwnerId("host-a", 101, "owner-a")
PENDING = RunSnapshot(RunStatus.PENDING)
IDS = [RunId(each) for each in ("a", "b", "é" * 600)]


class Mirror:
    """What a follower knows of each run, by the changes it was told."""

    def __init__(self, stores, source):
        self.stores, self.source, self.position = stores, source, START
        self.reported: dict[RunId, RunChange] = {}

    async def catch_up(self):
        while True:
            page = await self.stores.changes.changes_since(self.source, self.position, 2)
            assert isinstance(page, ChangesPage)
            for change in page.changes:
                assert change.position > self.position
                self.position = change.position
                earlier = self.reported.get(change.run_id)
                assert earlier is None or change.entry > earlier.entry
                self.reported[change.run_id] = change
            if not page.has_more:
                return

    async def agrees(self):
        """Whether it is what the database holds: on a shared server others' transactions may delay the feed."""
        for sight in (await self.stores.changes.snapshot(IDS)).runs:
            assert isinstance(sight, DeletedRun | RunView)
            run_id = sight.run_id if isinstance(sight, DeletedRun) else sight.run.run_id
            reported = self.reported.get(run_id)
            if reported is None or (reported.deleted, reported.entry) != (isinstance(sight, DeletedRun), sight.entry):
                return False
        return True


async def changed(stores, draw, run_id):
    with contextlib.suppress(RunStoreError):
        await stores.runs.create(run_id, "{}")
    await stores.runs.claim_and_own(run_id, PENDING, A, 1)
    if draw.random() < 0.7:
        await stores.runs.transition_owned(run_id, A, RunStatus.COMPLETED)
    if draw.random() < 0.6:
        await stores.retention.delete(run_id)


async def held_open(stores, draw, run_id):
    async def body(tx):
        with contextlib.suppress(RunStoreError):
            await tx.runs.create(run_id, "{}")
        for _ in range(draw.randrange(20)):
            await asyncio.sleep(0)
        await tx.runs.request_cancel(run_id, 1)
        if draw.random() < 0.3:
            raise KeyError

    with contextlib.suppress(KeyError):
        await stores.writer.write(body)


@pytest.mark.parametrize("seed", range(4))
async def test_a_follower_ends_where_the_runs_do(shared_store, seed):
    draw = random.Random(seed)  # noqa: S311  (what is drawn keeps no secret)
    async with shared_store as stores:
        mirror = Mirror(stores, (await stores.changes.current()).source)
        for run_id in IDS:
            await stores.runs.create(run_id, "{}")

        async def writing():
            for _ in range(12):
                act = changed if draw.random() < 0.6 else held_open
                await act(stores, draw, draw.choice(IDS))

        async def following():
            while True:
                await mirror.catch_up()
                await asyncio.sleep(0)

        reading = asyncio.create_task(following())
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(*(writing() for _ in range(4)))
                while not await mirror.agrees():
                    assert not reading.done()
        finally:
            reading.cancel()
            await asyncio.wait({reading})
