"""Snapshot reads: they do not see later writes, and no write waits for them."""

import asyncio
from typing import Any, Final

import pytest

from belay_core.ids import RunId
from belay_core.records.run import CreateOptions
from belay_testing.cancels.awaits import cancel_at
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import PENDING, A, refused

R0: Final = RunId("r0")
MOST: Final = 500
"""Upper bound of the rounds that the reads wait."""


async def rounds(stores: Any, count: int, first: int = 0) -> None:
    """Rounds of one lineage, counted from ``first`` on."""
    for ordinal in range(first, first + count):
        await stores.runs.create(RunId(f"r{ordinal}"), f"[{ordinal}]", CreateOptions(None, "chain", ordinal))


class SnapshotsChapter(Chapter):
    """Snapshots."""

    async def test_lineage_latest_round_and_run_agree_whatever_is_written_meanwhile(self, stores: Any) -> None:
        await rounds(stores, 2)
        async with stores.snapshot() as reads:
            whole = await reads.lineage(R0)
            await rounds(stores, 1, first=2)
            await stores.runs.claim_and_own(RunId("r1"), PENDING, A, 0)
            assert await reads.lineage(R0) == whole
            assert await reads.latest_round(R0) == whole[-1]
            assert await reads.get(RunId("r1")) == whole[-1]
            await refused(reads.get(RunId("r2")), "not_found_row")
        assert len(await stores.runs.lineage(R0)) == len(whole) + 1
        async with stores.snapshot() as reads:
            assert (await reads.latest_round(R0)).run_id == "r2"

    async def test_several_snapshots_are_open_at_once(self, stores: Any) -> None:
        await rounds(stores, 1)
        async with stores.snapshot() as early:
            assert len(await early.lineage(R0)) == 1
            await rounds(stores, 1, first=1)
            async with stores.snapshot() as late:
                assert len(await late.lineage(R0)) == 1 + 1
                assert len(await early.lineage(R0)) == 1
            assert len(await early.lineage(R0)) == 1

    async def test_reads_of_one_moment_may_be_asked_for_at_once(self, stores: Any) -> None:
        await rounds(stores, 5)
        async with stores.snapshot() as reads:
            found = await asyncio.gather(*(reads.get(RunId(f"r{ordinal}")) for ordinal in range(5)))
        assert [run.state_json for run in found] == [f"[{ordinal}]" for ordinal in range(5)]

    async def test_reads_end_with_their_block(self, stores: Any) -> None:
        await rounds(stores, 1)
        async with stores.snapshot() as reads:
            pass
        await refused(reads.get(R0), "persistence_failed")
        async with stores.snapshot() as again:
            assert (await again.get(R0)).run_id == R0

    async def test_a_refused_read_leaves_the_moment_as_it_is(self, stores: Any) -> None:
        await rounds(stores, 1)
        async with stores.snapshot() as reads:
            assert len(await reads.lineage(R0)) == 1
            await rounds(stores, 1, first=1)
            for read in (reads.get, reads.lineage, reads.latest_round):
                await refused(read(RunId("")))
            assert len(await reads.lineage(R0)) == 1

    async def test_a_moment_may_be_left_at_any_await_and_the_next_one_is_there(self, stores: Any) -> None:
        await rounds(stores, 1)

        async def looked() -> None:
            async with stores.snapshot() as reads:
                await reads.get(R0)

        for at in range(1, MOST):
            ended = await cancel_at(looked(), at)
            async with stores.snapshot() as reads:
                assert (await reads.get(R0)).run_id == R0
            if not ended.was_struck:
                assert at > 1
                return
        pytest.fail("the reads wait for ever")
