"""Concurrent callers of the engine's commands."""

import asyncio

from belay_core.records.owner import OwnerId
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit


class AcquireRivalsChapter(Chapter):
    """Commands that race within one process."""

    async def test_rivals_in_one_process_never_get_the_same_run(self, kit: Kit) -> None:
        for number in range(60):
            await kit.start(f"run-{number}")
        rivals = await asyncio.gather(*(kit.acquire(limit=7) for _ in range(15)))
        taken = [acquired.run.run_id for got in rivals for acquired in got]
        assert sorted(taken) == sorted(f"run-{number}" for number in range(60))

    async def test_a_dead_owner_is_taken_over_by_exactly_one_of_many(self, kit: Kit) -> None:
        lease = await kit.own()
        dead = (lease.owner, OwnerId("host-a", 1, "other"))
        rivals = await asyncio.gather(*(kit.acquire(dead=dead) for _ in range(10)))
        assert sum(len(got) for got in rivals) == 1
