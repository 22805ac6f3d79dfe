"""Reads of one moment: what is written meanwhile is not seen, and nobody waits for them."""

import asyncio

import pytest

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus

A = OwnerId("host-a", 101, "owner-a")
PENDING = RunSnapshot(RunStatus.PENDING)


@pytest.fixture
def stores(kit):
    return kit.stores


async def rounds(stores, count, first=0):
    for ordinal in range(first, first + count):
        await stores.runs.create(RunId(f"r{ordinal}"), f"[{ordinal}]", CreateOptions(None, "chain", ordinal))


async def test_lineage_latest_round_and_run_agree_whatever_is_written_meanwhile(stores):
    await rounds(stores, 2)
    async with stores.snapshot() as reads:
        whole = await reads.lineage(RunId("r0"))
        await rounds(stores, 1, first=2)
        await stores.runs.claim_and_own(RunId("r1"), PENDING, A, int(stores.clock.now()))
        assert await reads.lineage(RunId("r0")) == whole
        assert await reads.latest_round(RunId("r0")) == whole[-1]
        assert await reads.get(RunId("r1")) == whole[-1]
        with pytest.raises(RunStoreError, match="not_found_row"):
            await reads.get(RunId("r2"))
    assert len(await stores.runs.lineage(RunId("r0"))) == 3
    async with stores.snapshot() as reads:
        assert (await reads.latest_round(RunId("r0"))).run_id == "r2"


async def test_several_moments_stand_beside_each_other(stores):
    await rounds(stores, 1)
    async with stores.snapshot() as early:
        assert len(await early.lineage(RunId("r0"))) == 1
        await rounds(stores, 1, first=1)
        async with stores.snapshot() as late:
            assert len(await late.lineage(RunId("r0"))) == 2
            assert len(await early.lineage(RunId("r0"))) == 1
        assert len(await early.lineage(RunId("r0"))) == 1


async def test_reads_of_one_moment_may_be_asked_for_at_once(stores):
    await rounds(stores, 5)
    async with stores.snapshot() as reads:
        found = await asyncio.gather(*(reads.get(RunId(f"r{ordinal}")) for ordinal in range(5)))
    assert [run.state_json for run in found] == [f"[{ordinal}]" for ordinal in range(5)]


async def test_reads_end_with_their_block(stores):
    await rounds(stores, 1)
    async with stores.snapshot() as reads:
        pass
    with pytest.raises(RunStoreError) as over:
        await reads.get(RunId("r0"))
    assert over.value.code == "persistence_failed"
    async with stores.snapshot() as again:
        assert (await again.get(RunId("r0"))).run_id == "r0"


async def test_a_bad_id_is_refused_and_the_moment_goes_on(stores):
    await rounds(stores, 1)
    async with stores.snapshot() as reads:
        with pytest.raises(RunStoreError, match="invalid_run"):
            await reads.lineage(RunId(""))
        assert (await reads.get(RunId("r0"))).run_id == "r0"


async def test_a_cancelled_read_leaves_nothing_behind(stores):
    await rounds(stores, 1)
    for _ in range(12):
        async with stores.snapshot() as reads:
            read = asyncio.ensure_future(reads.get(RunId("r0")))
            await asyncio.sleep(0)  # lets the read begin, waits for no time
            read.cancel()
            await asyncio.wait({read})
            assert read.cancelled()
    async with stores.snapshot() as reads:
        assert (await reads.get(RunId("r0"))).run_id == "r0"
