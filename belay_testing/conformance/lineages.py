"""Lineages: chains of runs that callers see as one piece of work."""

from typing import Any

import pytest

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.run import CreateOptions, RunStatus
from belay_core.stores.run_contract import AlreadyRequested, CancelRequested, NotFound, Terminal
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import (
    chain,
    complete,
)


class LineagesChapter(Chapter):
    """``lineage``, ``latest_round`` and ``request_cancel_lineage``."""

    @case(52)
    async def test_a_run_that_has_a_lineages_name_is_none_of_its_rounds(self, runs: Any) -> None:
        await runs.create("shared-name", "{}", CreateOptions(lineage_id="independent-lineage", round_ordinal=0))
        await runs.create("target", "{}", CreateOptions(lineage_id="shared-name", round_ordinal=0))
        assert [row.run_id for row in await runs.lineage("target")] == ["target"]
        assert [row.run_id for row in await runs.lineage("shared-name")] == ["shared-name"]
        assert await runs.request_cancel_lineage("target", 100) == CancelRequested(100)
        assert (await runs.get("shared-name")).cancel_requested_at_ms is None

    async def test_a_first_round_from_before_lineages_belongs_to_the_lineage_named_after_it(self, runs: Any) -> None:
        await runs.create("root", "{}")
        await runs.create("second", "{}", CreateOptions(lineage_id="root", round_ordinal=1))
        for run_id in ("root", "second"):
            assert [row.run_id for row in await runs.lineage(run_id)] == ["root", "second"]
            assert (await runs.latest_round(run_id)).run_id == "second"

    async def test_parents_and_children_are_no_lineage_and_a_lone_run_is_its_own(self, runs: Any) -> None:
        await runs.create("parent", "{}")
        await runs.create("child", "{}", CreateOptions(parent_run_id=RunId("parent")))
        assert [row.run_id for row in await runs.lineage("parent")] == ["parent"]
        assert (await runs.latest_round("child")).run_id == "child"
        assert await runs.lineage("missing") == ()
        with pytest.raises(RunStoreError, match="not_found_row"):
            await runs.latest_round("missing")

    @case(53)
    async def test_settled_rounds_are_untouched_and_the_latest_live_request_is_returned(self, runs: Any) -> None:
        await chain(runs, "root", "next")
        await complete(runs, "root")
        assert await runs.request_cancel_lineage("root", 100) == CancelRequested(100)
        assert await runs.request_cancel_lineage("next", 200) == AlreadyRequested(100)
        root = await runs.get("root")
        assert (root.cancel_requested_at_ms, root.status) == (None, "completed")
        assert await runs.request_cancel_lineage("missing", 1) == NotFound()
        await complete(runs, "next")
        assert await runs.request_cancel_lineage("root", 300) == Terminal(RunStatus.COMPLETED)
