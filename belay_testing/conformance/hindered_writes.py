"""Writes that the database hinders, and what they cost."""

from typing import Any, Final

import pytest

from belay_core.errors import DatabaseError, RunStoreError
from belay_core.records.run import CreateOptions
from belay_core.stores.run_contract import AlreadyRequested, CancelRequested, FenceLost, HeartbeatFresh, Updated
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import PENDING, A, B, R, chain, complete, own, refused
from belay_testing.harness import Tamper

ENTRIES: Final = "SELECT run_id, entry, kind FROM belay_journal ORDER BY run_id, entry"


def completed_rounds(lineage: str, count: int) -> list[str]:
    """Statements that add ``count`` rounds after the first, all of them ended."""
    rows = [f"('{lineage}-{n}', 'completed', 0, 0, '{lineage}', {n})" for n in range(1, count + 1)]
    columns = "run_id, status, created_at, finished_at, lineage_id, round_ordinal"
    return [f"INSERT INTO belay_runs ({columns}) VALUES {', '.join(rows)}"] if rows else []  # noqa: S608  (constants of this module)


class HinderedWritesChapter(Chapter):
    """Cancel requests against a database that ignores or refuses them."""

    @case(49)
    async def test_a_write_that_keeps_missing_a_live_run_is_an_error_and_not_an_endless_loop(
        self, runs: Any, tamper: Tamper
    ) -> None:
        await runs.create(R, "{}")
        await tamper.ignore("cancel_requested_at")
        with pytest.raises(RunStoreError) as found:
            await runs.request_cancel(R, 500)
        assert found.value.code == "persistence_failed"
        assert dict(found.value.cause or {}) == {"run_id": R, "stage": "write-invariant"}
        assert (await runs.get(R)).cancel_requested_at_ms is None

    async def test_the_acknowledgement_that_is_kept_is_the_first(self, runs: Any, tamper: Tamper) -> None:
        await own(runs)
        await runs.request_cancel(R, 4)
        assert await runs.acknowledge_cancel(R, A, 5) is True
        assert await runs.acknowledge_cancel(R, A, 9) is True
        kept = await tamper.read("SELECT cancel_acknowledgement FROM belay_runs")
        assert kept == [('{"observed_at_ms":5,"owner":{"host_id":"host-a","pid":101,"nonce":"owner-a"}}',)]

    @case(55)
    async def test_a_lineage_is_asked_as_a_whole_or_not_at_all(self, runs: Any, tamper: Tamper) -> None:
        await chain(runs, "root", "next")
        await tamper.refuse("cancel_requested_at", "next")
        with pytest.raises(RunStoreError, match="constraint"):
            await runs.request_cancel_lineage("root", 100)
        assert [row.cancel_requested_at_ms for row in await runs.lineage("root")] == [None, None]
        await tamper.allow()
        assert await runs.request_cancel_lineage("root", 200) == CancelRequested(200)
        assert [row.cancel_requested_at_ms for row in await runs.lineage("root")] == [200, 200]

    @case(56)
    async def test_a_request_costs_the_same_whatever_the_length_of_the_lineage(self, runs: Any, tamper: Tamper) -> None:
        counts: list[tuple[int, int]] = []
        for length in (2, 1_000):
            first, last = f"first-{length}", f"last-{length}"
            await runs.create(first, "{}", CreateOptions(lineage_id=first, round_ordinal=0))
            await complete(runs, first)
            await tamper.run(*completed_rounds(first, length - 2))
            await runs.create(last, "{}", CreateOptions(lineage_id=first, round_ordinal=length - 1))
            with tamper.sent() as hit:
                assert await runs.request_cancel_lineage(first, 100) == CancelRequested(100)
            with tamper.sent() as miss:
                assert await runs.request_cancel_lineage(first, 200) == AlreadyRequested(100)
            counts.append((len(hit), len(miss)))
            asked = "SELECT run_id FROM belay_runs WHERE cancel_requested_at IS NOT NULL ORDER BY created_at, run_id"
            assert (last,) in await tamper.read(asked)
            assert len(await tamper.read(asked)) == len(counts)
            assert not any("state" in each.replace("status", "") for each in (*hit, *miss))
        # One marks, one writes the journal, one checks for a race; a miss has no journal entry.
        assert counts == [(3, 2), (3, 2)]

    @case(61)
    async def test_a_run_keeps_its_id_and_a_refused_change_leaves_no_entry(self, runs: Any, tamper: Tamper) -> None:
        await own(runs)
        reported = await tamper.read(ENTRIES)
        with pytest.raises(DatabaseError):
            await tamper.run("UPDATE belay_runs SET run_id = 'renamed'")
        await refused(runs.create(R, "{}"), "constraint")
        assert await runs.claim(R, PENDING, B, 0) == HeartbeatFresh()
        assert await runs.transition_owned(R, B, "failed") == FenceLost()
        assert await runs.heartbeat(R, A, 0) == Updated()
        assert await tamper.read(ENTRIES) == reported
        assert (await runs.get(R)).owner == A
