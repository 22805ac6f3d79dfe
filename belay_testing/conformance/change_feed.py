"""The change feed: no change is missed, each run appears once with its latest state, another source is noticed."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, Final

import pytest

from belay_core.ids import RunId
from belay_core.records.attempt import Attempt
from belay_core.records.changes import START, DeletedRun, FeedPosition, MissingRun, RunChange, RunView
from belay_core.records.run import CreateOptions, RunStatus
from belay_core.records.waiting import Wait
from belay_core.stores.changes import ChangesPage, SourceChanged
from belay_core.stores.retention import Deleted
from belay_testing.cases import case
from belay_testing.conformance.auxiliary import ELSEWHERE, LONG, over
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import PENDING, A, R, own

_MARKER: Final = "marker-"


class Follower:
    """Reads a feed to its end, again and again.

    A change may reach the feed after the call that made it has returned, but never before an earlier change. So a run
    that is created for this purpose marks the end.
    """

    _numbers = count()

    def __init__(self, stores: Any, source: str, position: FeedPosition = START, limit: int = 100) -> None:
        self.source = source
        self.position = position
        self._stores = stores
        self._limit = limit

    async def read(self) -> list[RunChange]:
        """All changes since the last read."""
        marker = RunId(f"{_MARKER}{next(self._numbers)}")
        await self._stores.runs.create(marker, "{}")
        while not await self._can_see(marker):
            pass
        return [change for change in await self.read_now() if not change.run_id.startswith(_MARKER)]

    async def _can_see(self, run_id: RunId) -> bool:
        """Whether the feed shows this run already; the position does not move."""
        position, more = self.position, True
        while more:
            page = await self._stores.changes.changes_since(self.source, position, self._limit)
            if any(change.run_id == run_id for change in page.changes):
                return True
            position, more = page.next_position, page.has_more
        return False

    async def read_now(self) -> list[RunChange]:
        """What can be read since the last read; pages never go back, and hold each run once."""
        found: list[RunChange] = []
        while True:
            page = await self._stores.changes.changes_since(self.source, self.position, self._limit)
            assert isinstance(page, ChangesPage)
            assert len(page.changes) <= self._limit
            assert page.source == self.source
            places = [self.position, *(change.position for change in page.changes)]
            assert places == sorted(set(places))
            assert page.next_position == places[-1]
            found += page.changes
            self.position = page.next_position
            if not page.has_more:
                return found

    async def ids(self) -> list[RunId]:
        """The runs that changed since the last read."""
        return [change.run_id for change in await self.read()]


async def follow(stores: Any, **more: Any) -> Follower:
    """A follower of these stores that starts before the first change."""
    return Follower(stores, (await stores.changes.current()).source, **more)


class ChangeFeedChapter(Chapter):
    """``changes_since`` and ``current``."""

    async def test_a_new_source_has_a_name_and_no_changes(self, stores: Any) -> None:
        head = await stores.changes.current()
        assert len(head.source) == len(ELSEWHERE)
        assert head.position == START
        empty = ChangesPage(head.source, (), START, has_more=False)
        assert await stores.changes.changes_since(head.source, START) == empty

    @case(59)
    @pytest.mark.parametrize("limit", [1, 2, 100])
    async def test_each_run_appears_once_with_its_latest_state(self, stores: Any, limit: int) -> None:
        follower = await follow(stores, limit=limit)
        for name in ("a", "b", "c", "d"):
            await stores.runs.create(RunId(name), "{}")
        await stores.runs.request_cancel(RunId("b"), 1)
        await stores.runs.request_cancel(RunId("a"), 1)
        changes = await follower.read()
        assert [(each.run_id, each.entry, each.at_ms, each.kind, each.deleted) for each in changes] == [
            ("c", 1, 0, "created", False),
            ("d", 1, 0, "created", False),
            ("b", 2, 0, "cancel_requested", False),
            ("a", 2, 0, "cancel_requested", False),
        ]
        assert (await stores.changes.current()).position == follower.position
        assert await follower.read() == []
        await stores.runs.request_cancel(RunId("d"), 1)
        assert await follower.ids() == ["d"]

    async def test_a_page_says_whether_there_is_more(self, stores: Any) -> None:
        follower = await follow(stores)
        for name in ("a", "b"):
            await stores.runs.create(RunId(name), "{}")
        await follower.read()  # and its marker is the third
        source = follower.source
        more = [(await stores.changes.changes_since(source, START, limit)).has_more for limit in (1, 2, 3, 4)]
        assert more == [True, True, False, False]

    async def test_one_write_to_many_runs_is_paged(self, stores: Any) -> None:
        for ordinal in range(7):
            await stores.runs.create(RunId(f"round-{ordinal}"), "{}", CreateOptions(None, "chain", ordinal))
        follower = await follow(stores, limit=2)
        await follower.read()
        await stores.runs.request_cancel_lineage(RunId("round-0"), 5)
        assert sorted(await follower.ids()) == [f"round-{ordinal}" for ordinal in range(7)]

    async def test_all_changes_of_the_contract_are_followed_but_heartbeats_and_attempts(self, stores: Any) -> None:
        follower = await follow(stores)
        await own(stores.runs)
        await follower.read()
        await stores.runs.heartbeat(R, A, 1)
        await stores.attempts.put(Attempt(R, "digest", 1, "running", 1, {}), A)
        assert await follower.read() == []
        changes: tuple[Callable[[], Any], ...] = (
            lambda: stores.runs.transition_owned(R, A, RunStatus.RUNNING, '{"n":1}'),
            lambda: stores.runs.request_cancel(R, 1),
            lambda: stores.runs.acknowledge_cancel(R, A, 2),
            lambda: stores.journal.append(R, A, "mine", None),
            lambda: stores.waiting.park(R, Wait("event"), A),
            lambda: stores.waiting.wake(R),
            lambda: stores.runs.transition_owned(R, A, RunStatus.SUSPENDED),
            lambda: stores.runs.request_cancel_lineage(R, 3),
        )
        for change in changes:
            await change()
        assert [change.run_id for change in await follower.read()] == [R]
        await stores.runs.claim_and_own(R, await stores.runs.get(R), A, 0)
        assert await follower.ids() == [R]
        await stores.runs.transition_owned(R, A, RunStatus.COMPLETED)
        assert await follower.ids() == [R]
        await stores.retention.delete(R)
        [gone] = await follower.read()
        assert gone.deleted

    async def test_a_deletion_appears_with_the_full_id_and_a_new_life_is_a_later_change(self, stores: Any) -> None:
        follower = await follow(stores)
        for run_id in (R, LONG):
            await over(stores, run_id)
            await follower.read()
            assert isinstance(await stores.retention.delete(run_id), Deleted)
            [gone] = await follower.read()
            assert (gone.run_id, gone.deleted, gone.kind) == (run_id, True, "deleted")
            from_the_start = Follower(stores, follower.source)
            assert gone in await from_the_start.read()
            await stores.runs.create(run_id, "{}")
            [again] = await follower.read()
            assert (again.run_id, again.deleted, again.kind) == (run_id, False, "created")
            assert again.entry == gone.entry + 1
            assert again.position > gone.position

    async def test_another_source_or_a_place_ahead_has_to_be_rebuilt(self, stores: Any) -> None:
        follower = await follow(stores)
        await stores.runs.create(R, "{}")
        await follower.read()
        rebuilt = SourceChanged(follower.source)
        assert await stores.changes.changes_since(ELSEWHERE, START) == rebuilt
        assert await stores.changes.changes_since(ELSEWHERE, follower.position) == rebuilt
        assert await stores.changes.changes_since(follower.source, FeedPosition("f" * len(START))) == rebuilt

    async def test_writers_at_once_leave_no_gap(self, stores: Any) -> None:
        names = [RunId(f"run-{number}") for number in range(18)]
        follower = await follow(stores, limit=5)
        seen: dict[RunId, int] = {}

        async def write(mine: list[RunId]) -> None:
            for name in mine:
                await stores.runs.create(name, "{}")
                await stores.runs.request_cancel(name, 1)
                await stores.runs.claim_and_own(name, PENDING, A, 0)
                await stores.journal.append(name, A, "mine", None)

        writers = [asyncio.ensure_future(write(names[part::6])) for part in range(6)]
        while not all(writer.done() for writer in writers):
            for change in await follower.read_now():
                assert change.entry > seen.get(change.run_id, 0)
                seen[change.run_id] = change.entry
        await asyncio.gather(*writers)
        for change in await follower.read():
            seen[change.run_id] = change.entry
        assert seen == dict.fromkeys(names, 5)


class SnapshotBatchesChapter(Chapter):
    """``snapshot``: the state of runs at one position of the feed."""

    async def test_a_batch_keeps_the_order_asked_for_and_distinguishes_missing_from_deleted(self, stores: Any) -> None:
        for name in ("a", "b"):
            await own(stores.runs, run_id=name)
        await stores.waiting.park(RunId("b"), Wait("human", 5, "t", {"q": 1}), A)
        await over(stores, RunId("gone"))
        deleted = await stores.retention.delete(RunId("gone"))
        await own(stores.runs, run_id=LONG)
        follower = await follow(stores)
        await follower.read()
        ids = [RunId("b"), RunId("gone"), RunId("never"), LONG, RunId("a"), RunId("b")]
        batch = await stores.changes.snapshot(ids)
        assert (batch.source, batch.position) == (follower.source, follower.position)
        assert [sight.run.run_id if isinstance(sight, RunView) else sight.run_id for sight in batch.runs] == ids
        first, gone, never, _, plain, last = batch.runs
        assert never == MissingRun(RunId("never"))
        assert gone == DeletedRun(RunId("gone"), 5, deleted.deleted_at_ms)
        assert first == last
        assert first.run == await stores.runs.get(RunId("b"))
        assert first.waiting == await stores.waiting.waiting(RunId("b"))
        assert first.cancellation == await stores.changes.cancellation(RunId("b"))
        assert (first.entry, plain.entry, plain.waiting) == (4, 3, None)
        assert await stores.changes.snapshot([]) == replace(batch, runs=())

    async def test_a_batch_is_of_one_moment(self, stores: Any) -> None:
        """A writer changes two runs together, and no batch sees one of them changed and the other not."""
        rounds = [RunId(f"r{ordinal}") for ordinal in range(2)]
        for ordinal, run_id in enumerate(rounds):
            await stores.runs.create(run_id, "{}", CreateOptions(None, "chain", ordinal))
        writer = asyncio.ensure_future(stores.runs.request_cancel_lineage(rounds[0], 5))
        while True:
            done = writer.done()
            batch = await stores.changes.snapshot(rounds)
            [asked] = {view.cancellation.requested_at_ms for view in batch.runs}
            if done:
                break
        assert asked == (await writer).requested_at_ms
