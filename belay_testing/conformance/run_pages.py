"""Runs in pages, and the view of a cancel request."""

from dataclasses import replace
from typing import Any

import pytest

from belay_core.errors import ChangesError
from belay_core.ids import RunId
from belay_core.records.changes import Acknowledgement, CancellationView, RunFilters
from belay_core.records.run import CreateOptions, RunStatus
from belay_core.stores.changes import SourceChanged
from belay_core.stores.run_contract import NotFound
from belay_testing.conformance.auxiliary import ELSEWHERE
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import PENDING, A, R, own


async def listed(stores: Any, filters: Any = None, limit: int = 100) -> list[RunId]:
    """All pages of a listing, one after another."""
    found: list[RunId] = []
    cursor: str | None = None
    while True:
        page = await stores.changes.list_runs(filters, limit, cursor)
        found += [run.run_id for run in page.runs]
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(page.runs) == limit


class RunPagesChapter(Chapter):
    """``list_runs`` and ``cancellation``."""

    async def test_runs_are_listed_by_the_moment_of_their_creation_and_then_their_id(self, stores: Any) -> None:
        for name in ("c", "a", "b"):
            await stores.runs.create(RunId(name), "{}")
        stores.clock.advance(1)
        await stores.runs.create(RunId("A"), "{}", CreateOptions(RunId("b")))
        await stores.runs.create(RunId("d"), "{}")
        whole = ["a", "b", "c", "A", "d"]
        for limit in (1, 2, 3, 5, 200):
            assert await listed(stores, limit=limit) == whole
        assert await listed(stores, RunFilters(workflow="none")) == []
        assert await listed(stores, RunFilters(parent_run_id=RunId("b"))) == ["A"]
        await stores.runs.claim_and_own(RunId("b"), PENDING, A, 1)
        assert await listed(stores, RunFilters(RunStatus.PENDING), limit=2) == ["a", "c", "A", "d"]
        assert await listed(stores, {"status": "running"}) == ["b"]
        page = await stores.changes.list_runs(limit=5)
        assert page.cursor is None
        assert page.source == (await stores.changes.current()).source

    async def test_runs_made_while_pages_are_read_come_after_them(self, stores: Any) -> None:
        for name in ("a", "b", "c"):
            await stores.runs.create(RunId(name), "{}")
        first = await stores.changes.list_runs(limit=2)
        stores.clock.advance(1)
        await stores.runs.create(RunId("0"), "{}")
        rest = await stores.changes.list_runs(limit=2, cursor=first.cursor)
        assert [run.run_id for run in (*first.runs, *rest.runs)] == ["a", "b", "c", "0"]

    async def test_a_cursor_goes_with_its_filters_and_its_source(self, stores: Any) -> None:
        for name in ("a", "b", "c"):
            await stores.runs.create(RunId(name), "{}")
        pending = RunFilters(RunStatus.PENDING)
        page = await stores.changes.list_runs(pending, 1)
        assert [run.run_id for run in (await stores.changes.list_runs(pending, 1, page.cursor)).runs] == ["b"]
        for other in (None, RunFilters(RunStatus.RUNNING), RunFilters(RunStatus.PENDING, "w")):
            with pytest.raises(ChangesError) as refused:
                await stores.changes.list_runs(other, 1, page.cursor)
            assert dict(refused.value.cause or {}) == {"field": "cursor", "detail": "belongs to other filters"}
        foreign = page.cursor.replace(page.source, ELSEWHERE)
        assert await stores.changes.list_runs(pending, 1, foreign) == SourceChanged(page.source)

    async def test_asked_seen_and_over_are_three_facts(self, stores: Any) -> None:
        assert await stores.changes.cancellation(R) == NotFound()
        await own(stores.runs)
        view = CancellationView(R, RunStatus.RUNNING, None, None, terminal=False)
        assert await stores.changes.cancellation(R) == view
        await stores.runs.request_cancel(R, 500)
        assert await stores.changes.cancellation(R) == replace(view, requested_at_ms=500)
        for at in (600, 700):
            await stores.runs.acknowledge_cancel(R, A, at)
        seen = replace(view, requested_at_ms=500, acknowledgement=Acknowledgement(A, 600))
        assert await stores.changes.cancellation(R) == seen
        await stores.runs.transition_owned(R, A, RunStatus.COMPLETED)
        assert await stores.changes.cancellation(R) == replace(seen, status=RunStatus.COMPLETED, terminal=True)
