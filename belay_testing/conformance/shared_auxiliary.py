"""Two openings of one database, as two processes have them: the auxiliary stores, and writes."""

import asyncio
from collections import Counter
from typing import Any

from belay_core.ids import RunId
from belay_core.records.run import RunStatus
from belay_core.records.waiting import Wait
from belay_core.stores.journal import Appended
from belay_core.stores.run_contract import Transitioned
from belay_core.stores.waiting import NotWaiting, Parked, Woken
from belay_testing.conformance.auxiliary import exists, kinds, over
from belay_testing.conformance.change_feed import Follower, follow
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import A, R, own, together
from belay_testing.conformance.writes import ONE, TWO
from belay_testing.harness import Harness


class SharedAuxiliaryChapter(Chapter):
    """What one opening commits every other reads."""

    async def test_a_place_in_the_feed_holds_over_a_reopening(self, harness: Harness) -> None:
        async with harness.open() as stores:
            await stores.runs.create(RunId("a"), "{}")
            follower = await follow(stores)
            assert await follower.ids() == ["a"]
        async with harness.open() as stores:
            again = Follower(stores, follower.source, follower.position)
            assert await again.read() == []
            await stores.runs.create(RunId("b"), "{}")
            assert await again.ids() == ["b"]

    async def test_a_follower_reads_what_another_opening_changes(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            assert (await one.changes.current()).source == (await other.changes.current()).source
            follower = await follow(other)
            await own(one.runs)
            assert await follower.ids() == [R]
            await one.journal.append(R, A, "mine", 1)
            [change] = await follower.read()
            assert (change.run_id, change.kind) == (R, "mine")

    async def test_a_wait_of_one_opening_is_woken_once_by_all(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            await own(one.runs)
            assert isinstance(await one.waiting.park(R, Wait("event", 5, "t", [1]), A), Parked)
            assert await other.waiting.waiting(R) == await one.waiting.waiting(R)
            woken = await asyncio.gather(*(stores.waiting.wake(R) for stores in (one, other) * 2))
            assert Counter(type(answer) for answer in woken) == {Woken: 1, NotWaiting: 3}
            assert await kinds(other) == ["created", "parked", "woken"]

    async def test_events_of_all_openings_are_counted_together(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            await own(one.runs)
            calls: list[Any] = [stores.journal.append(R, A, "n", 1) for stores in (one, other) * 4]
            answers = await asyncio.gather(*calls)
            assert sorted(answer.entry for answer in answers if isinstance(answer, Appended)) == list(range(4, 12))
            assert await one.journal.read(R) == await other.journal.read(R)

    async def test_of_deletions_in_two_openings_one_counts(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            await over(one)
            answers = await asyncio.gather(*(stores.retention.delete(R) for stores in (one, other) * 2))
            assert Counter(type(answer).__name__ for answer in answers) == {"Deleted": 1, "NotFound": 3}

    async def test_an_open_write_is_seen_from_inside_and_not_from_another_opening(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            await own(one.runs)

            async def body(inside: Any) -> None:
                await inside.runs.create(ONE, "{}")
                assert await inside.runs.transition_owned(R, A, RunStatus.COMPLETED) == Transitioned()
                await asyncio.gather(*(self._untouched(stores) for stores in (other, other)))
                assert await exists(inside, ONE) == [True]

            await one.write(body)
            assert await exists(other, ONE) == [True]
            assert (await other.runs.get(R)).status is RunStatus.COMPLETED

    async def _untouched(self, stores: Any) -> None:
        assert await exists(stores, ONE) == [False]
        assert (await stores.runs.get(R)).status is RunStatus.RUNNING

    async def test_writes_of_two_openings_are_both_made(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            await own(one.runs)

            def adding(run_id: RunId) -> Any:
                async def body(inside: Any) -> Any:
                    await inside.runs.create(run_id, "{}")
                    return await inside.journal.append(R, A, str(run_id), None)

                return body

            answers = await together(one.write(adding(ONE)), other.write(adding(TWO)))
            assert [type(answer) for answer in answers] == [Appended, Appended]
            assert sorted((await kinds(one))[1:]) == ["one", "two"]
            assert await exists(other, ONE, TWO) == [True, True]
