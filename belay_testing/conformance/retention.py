"""Deleting runs: only one that has ended and has no live child, completely, and never its journal."""

import asyncio
import json
from collections import Counter
from typing import Any, Final

import pytest

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import AttemptId
from belay_core.records.run import CreateOptions, RunStatus
from belay_core.stores.retention import ChildrenLive, Deleted, StillLive
from belay_core.stores.run_contract import NotFound
from belay_testing.conformance.auxiliary import LONG, exists, kinds, over
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import PENDING, A, R, refused, together

ROUNDS: Final = 5
"""Rounds of the race."""


class RetentionChapter(Chapter):
    """Retention."""

    @pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
    @pytest.mark.parametrize("run_id", [R, LONG], ids=["short", "long"])
    async def test_a_run_that_is_over_goes_with_all_that_belongs_to_it_but_its_journal(
        self, stores: Any, run_id: RunId, status: RunStatus
    ) -> None:
        await over(stores, run_id, status)
        before, owned = await stores.journal.read(run_id), await stores.journal.ownership(run_id)
        stores.clock.advance(7)
        assert await stores.retention.delete(run_id) == Deleted(7)
        assert await stores.attempts.get(AttemptId(run_id, "digest", 1)) is None
        await refused(stores.runs.get(run_id), "not_found_row")
        *rest, tombstone = await stores.journal.read(run_id)
        assert tuple(rest) == before
        assert (tombstone.kind, tombstone.run_id, tombstone.at_ms) == ("deleted", run_id, 7)
        assert json.loads(tombstone.facts)["status"] == status.value
        assert await stores.journal.ownership(run_id) == owned
        assert await stores.retention.delete(run_id) == NotFound()

    @pytest.mark.parametrize("status", [RunStatus.PENDING, RunStatus.RUNNING, RunStatus.SUSPENDED])
    async def test_a_run_that_is_not_over_stays(self, stores: Any, status: RunStatus) -> None:
        await stores.runs.create(R, "{}")
        if status is not RunStatus.PENDING:
            await stores.runs.claim_and_own(R, PENDING, A, 0)
        if status is RunStatus.SUSPENDED:
            await stores.runs.transition_owned(R, A, status)
        before = await stores.runs.get(R)
        assert await stores.retention.delete(R) == StillLive(status)
        assert await stores.retention.delete(RunId("missing")) == NotFound()
        assert await stores.runs.get(R) == before
        assert "deleted" not in await kinds(stores)

    async def test_a_parent_stays_while_a_child_lives_and_its_other_children_lose_it(self, stores: Any) -> None:
        done, *live = (RunId(name) for name in ("done", "live-1", "live-2"))
        await over(stores)
        await over(stores, done, parent=R)
        for child in live:
            await stores.runs.create(child, "{}", CreateOptions(R))
        assert await stores.retention.delete(R) == ChildrenLive(2)
        assert (await stores.runs.get(done)).parent_run_id == R
        for child in live:
            await stores.runs.claim_and_own(child, PENDING, A, 0)
            await stores.runs.transition_owned(child, A, RunStatus.CANCELLED)
        assert await stores.retention.delete(R) == Deleted(0)
        for child in (done, *live):
            row = await stores.runs.get(child)
            assert (row.parent_run_id, (await kinds(stores, child))[-1]) == (None, "parent_deleted")
        await refused(stores.runs.create(RunId("late"), "{}", CreateOptions(R)), "constraint")

    async def test_a_new_run_under_the_id_goes_on_counting(self, stores: Any) -> None:
        for life in range(3):
            await over(stores)
            entries = [*await stores.journal.read(R), *await stores.journal.ownership(R)]
            assert sorted(entry.entry for entry in entries) == list(range(1, 4 + 5 * life + 1))
            assert await stores.attempts.get(AttemptId(R, "digest", 1)) is not None
            assert await stores.retention.delete(R) == Deleted(0)
            assert await stores.attempts.get(AttemptId(R, "digest", 1)) is None
        assert await kinds(stores) == ["created", "deleted"] * 3

    async def test_of_deletions_at_once_one_counts(self, stores: Any) -> None:
        await over(stores)
        answers = await asyncio.gather(*(stores.retention.delete(R) for _ in range(4)))
        assert Counter(type(answer).__name__ for answer in answers) == {"Deleted": 1, "NotFound": 3}
        assert (await kinds(stores)).count("deleted") == 1

    async def test_a_run_made_while_its_namesake_is_deleted_counts_behind_it(self, stores: Any) -> None:
        async def created() -> None:
            while True:
                try:
                    await stores.runs.create(R, "{}")
                except RunStoreError as taken:
                    if taken.code != "constraint":
                        raise
                else:
                    return

        await over(stores)
        for _ in range(ROUNDS):
            answers = await together(created(), stores.retention.delete(R))
            assert answers == [None, Deleted(0)]
            assert (await kinds(stores))[-2:] == ["deleted", "created"]
            assert await exists(stores, R) == [True]
            await stores.runs.claim_and_own(R, PENDING, A, 0)
            await stores.runs.transition_owned(R, A, RunStatus.FAILED)
