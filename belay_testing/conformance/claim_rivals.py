"""Concurrent claims: one of them wins, and every other gets an outcome that says so."""

import asyncio
from typing import Any

from belay_core.records.owner import OwnerId
from belay_core.stores.run_contract import Activated, HeartbeatFresh
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import (
    PENDING,
    R,
    together,
)


class ClaimRivalsChapter(Chapter):
    """Calls that race within one process."""

    async def test_of_two_creations_at_once_one_is_a_constraint(self, runs: Any) -> None:
        answers = await together(runs.create(R, "1"), runs.create(R, "2"))
        assert sorted(type(answer).__name__ for answer in answers) == ["NoneType", "RunStoreError"]

    async def test_of_eight_rivals_exactly_one_owns_the_run(self, runs: Any) -> None:
        await runs.create(R, "{}")
        rivals = [OwnerId("h", pid, f"n{pid}") for pid in range(8)]
        answers = await asyncio.gather(*(runs.claim_and_own(R, PENDING, rival, 0) for rival in rivals))
        assert sum(answer == Activated() for answer in answers) == 1
        assert set(answers) == {Activated(), HeartbeatFresh()}
