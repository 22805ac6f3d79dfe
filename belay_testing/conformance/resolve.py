"""How an operator resolves runs in review."""

import json
from dataclasses import replace
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import Lease
from belay_core.records.step_record import StepState
from belay_core.records.workflow_run import RunWait
from belay_core.stores.attempts import Recorded
from belay_core.stores.run_contract import NotFound
from belay_core.stores.runs import NotInReview, PendingSignal, Resolved
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit


async def orphaned(kit: Kit, *, parked: bool = True) -> Lease:
    """A run with an orphaned step, in review or still running."""
    lease = await kit.own()
    orphan = kit.step("pay#1", StepState.ORPHANED, recorded=None, finished_at_ms=None, meta='{"a":1}')
    await kit.record(lease, orphan)
    if parked:
        await kit.stores.runs.park(commands.Park(lease, RunWait("needs_review", "pay#1")))
    return lease


def resolve_command(
    resolution: commands.Resolution, step_key: str | None = "pay#1", run_id: str = "run-1"
) -> commands.Resolve:
    """An operator's resolution of the orphan, or of the run as a whole."""
    return commands.Resolve(RunId(run_id), resolution, "ada", step_key)


class ResolveChapter(Chapter):
    """``resolve``."""

    @pytest.mark.parametrize("parked", [True, False])
    async def test_a_resolution_of_an_orphan_is_kept_with_it_and_the_run_goes_on(self, kit: Kit, parked: Any) -> None:
        lease = await orphaned(kit, parked=parked)
        kit.clock.advance(5)
        assert await kit.stores.runs.resolve(resolve_command(commands.Happened('{"id":9}'))) == Resolved(kit.now)
        attempt = (await kit.attempts())["pay#1"]
        assert (attempt.state, attempt.outcome, attempt.recorded) == (StepState.ORPHANED, '{"id":9}', None)
        assert (attempt.resolved_by, attempt.resolved_at_ms) == ("ada", kit.now)
        assert json.loads(attempt.meta) == {"a": 1, "resolution": "happened"}
        assert (await kit.run()).ready_at_ms == kit.now
        if not parked:
            assert await kit.park(lease) == PendingSignal()
        entry = (await kit.stores.journal.read(RunId("run-1")))[-1]
        facts = {"resolution": "happened", "by": "ada", "step_key": "pay#1"}
        assert (entry.kind, json.loads(entry.facts)) == ("resolved", facts)

    async def test_an_orphan_is_resolved_once(self, kit: Kit) -> None:
        await orphaned(kit)
        assert isinstance(await kit.stores.runs.resolve(resolve_command(commands.Retry())), Resolved)
        assert json.loads((await kit.attempts())["pay#1"].meta) == {"a": 1, "resolution": "retry"}
        for again in (commands.Retry(), commands.Happened("1"), commands.GiveUp()):
            assert await kit.stores.runs.resolve(resolve_command(again)) == NotInReview()

    async def test_the_next_owner_acts_on_the_word_and_it_stays_readable(self, kit: Kit) -> None:
        await orphaned(kit)
        await kit.stores.runs.resolve(resolve_command(commands.Happened("9")))
        resolved_at = kit.now
        [taken] = await kit.acquire()
        closed = kit.step("pay#1", outcome="9", recorded=1, meta='{"a":1}')
        assert isinstance(await kit.record(taken.lease, closed), Recorded)
        attempt = (await kit.attempts())["pay#1"]
        assert (attempt.state, attempt.resolved_by, attempt.resolved_at_ms) == ("succeeded", "ada", resolved_at)
        assert await kit.stores.runs.resolve(resolve_command(commands.Retry())) == NotInReview()

    async def test_only_the_latest_attempt_of_a_key_can_be_resolved(self, kit: Kit) -> None:
        lease = await orphaned(kit, parked=False)
        await kit.record(lease, kit.step("pay#1", StepState.RUNNING, attempt=2))
        assert await kit.stores.runs.resolve(resolve_command(commands.Retry())) == NotInReview()

    @pytest.mark.parametrize("step_key", ["pay#1", None])
    async def test_giving_up_fails_the_run_and_withdraws_what_it_asks(self, kit: Kit, step_key: Any) -> None:
        lease = await orphaned(kit, parked=False)
        await kit.ask(lease)
        assert await kit.stores.runs.resolve(resolve_command(commands.GiveUp(), step_key)) == NotInReview()
        await kit.stores.runs.park(commands.Park(lease, RunWait("needs_review", "pay#1")))
        kit.clock.advance(1)
        assert await kit.stores.runs.resolve(resolve_command(commands.GiveUp(), step_key)) == Resolved(kit.now)
        run = await kit.run()
        assert (run.status, run.finished_at_ms, run.ready_at_ms, run.waiting) == ("failed", kit.now, None, None)
        assert json.loads(run.error or "")["type"] == "GivenUp"
        assert (await kit.approval("ap-1")).decision == "withdrawn"
        assert (await kit.attempts())["editor#1"].state is StepState.CANCELLED
        assert await kit.acquire() == []
        assert await kit.stores.runs.resolve(resolve_command(commands.GiveUp(), step_key)) == NotInReview()

    async def test_a_run_in_review_as_a_whole_goes_on_with_its_takeovers_forgiven(self, kit: Kit) -> None:
        lease = await kit.own()
        for _ in range(2):
            kit.clock.advance(30_001)
            [taken] = await kit.acquire()
            lease = taken.lease
        await kit.stores.runs.park(commands.Park(lease, RunWait("needs_review"), request='{"why":"poison"}'))
        assert await kit.stores.runs.resolve(resolve_command(commands.Happened("1"), None)) == NotInReview()
        assert isinstance(await kit.stores.runs.resolve(resolve_command(commands.Retry(), None)), Resolved)
        assert (await kit.run()).takeovers == 0
        assert len(await kit.acquire()) == 1

    async def test_there_is_nothing_to_resolve_where_nothing_is_in_review(self, kit: Kit) -> None:
        assert await kit.stores.runs.resolve(resolve_command(commands.Retry())) == NotFound()
        lease = await kit.own()
        for resolution in (commands.Retry(), commands.Happened("1"), commands.GiveUp()):
            assert await kit.stores.runs.resolve(resolve_command(resolution)) == NotInReview()
            assert await kit.stores.runs.resolve(resolve_command(resolution, None)) == NotInReview()
        await kit.ask(lease)
        await kit.park(lease)
        assert await kit.stores.runs.resolve(resolve_command(commands.Retry(), None)) == NotInReview()
        assert await kit.kinds() == ["created", "asked", "suspended"]

    async def test_a_word_on_an_orphan_is_replaced_while_no_worker_has_the_run(self, kit: Kit) -> None:
        await orphaned(kit)
        await kit.stores.runs.resolve(resolve_command(commands.Happened("1")))
        again = replace(resolve_command(commands.Retry()), by="bob")
        assert await kit.stores.runs.resolve(again) == NotInReview()
        kit.clock.advance(5)
        assert await kit.stores.runs.resolve(replace(again, replace=True)) == Resolved(kit.now)
        attempt = (await kit.attempts())["pay#1"]
        assert (attempt.outcome, attempt.resolved_by, attempt.resolved_at_ms) == (None, "bob", kit.now)
        assert json.loads(attempt.meta) == {"a": 1, "resolution": "retry"}
        entry = (await kit.stores.journal.read(RunId("run-1")))[-1]
        assert (entry.kind, json.loads(entry.facts)["replaces"]) == ("resolved", "ada")
        await kit.acquire()
        assert await kit.stores.runs.resolve(replace(again, replace=True)) == NotInReview()
