"""Heartbeats of an owner: their time never moves back."""

from typing import Any

from belay_core.ids import RunId
from belay_core.stores.run_contract import FenceLost, NotFound, Updated
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import A, B, R, own, refused


class HeartbeatsChapter(Chapter):
    """``heartbeat``, and how far ahead of the database a reading may be."""

    async def test_a_reading_may_be_ten_seconds_ahead_and_no_more(self, runs: Any) -> None:
        await own(runs)
        assert await runs.heartbeat(R, A, 10_000) == Updated()
        error = await refused(runs.heartbeat(R, A, 10_001))
        assert (error.cause["now_ms"], error.cause["clock_ms"]) == (10_001, 0)

    @case(31, 32)
    async def test_a_late_heartbeat_counts_and_never_moves_the_stamp_back(self, kit: Kit, runs: Any) -> None:
        kit.clock.set(1_000)
        await own(runs, now=100)
        for sent, stored in ((200, 200), (150, 200), (250, 250)):
            assert await runs.heartbeat(R, A, sent) == Updated()
            assert (await runs.get(R)).heartbeat_at_ms == stored
        assert await runs.heartbeat(R, B, 300) == FenceLost()
        assert await runs.heartbeat(RunId("nowhere"), A, 300) == NotFound()
        for bad in (-1, 1.5, float("nan"), 2**53):
            await refused(runs.heartbeat(R, A, bad))
        assert (await runs.get(R)).heartbeat_at_ms == 250
