"""Which runs ``acquire`` hands out, in which order, and to which owner."""

from typing import Any

import pytest

from belay_core.records import commands
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import RunWait
from belay_core.stores.attempts import Recorded
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import RunParked
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import STALE


class AcquireChapter(Chapter):
    """``acquire``."""

    async def test_a_run_is_taken_once_with_what_its_owner_needs(self, kit: Kit) -> None:
        await kit.start()
        kit.clock.advance(5)
        owner = kit.owner()
        [acquired] = await kit.acquire(owner=owner)
        run = acquired.run
        assert (acquired.lease.owner, acquired.lease.epoch) == (owner, 1)
        assert (run.status, run.owner, run.epoch, run.takeovers) == (RunStatus.RUNNING, owner, 1, 0)
        assert (run.started_at_ms, run.heartbeat_at_ms, run.ready_at_ms) == (kit.now, kit.now, None)
        assert run == await kit.run()
        assert await kit.acquire() == []

    async def test_runs_come_by_priority_then_by_the_moment_they_were_ready_then_by_id(self, kit: Kit) -> None:
        for run_id, priority, at in (("c", 0, 5), ("b", 0, 5), ("a", 0, 6), ("z", 9, 9), ("y", 9, 8)):
            await kit.start(run_id, priority=priority, run_at_ms=kit.now + at)
        kit.clock.advance(10)
        assert [acquired.run.run_id for acquired in await kit.acquire(limit=3)] == ["y", "z", "b"]
        assert [acquired.run.run_id for acquired in await kit.acquire()] == ["c", "a"]

    async def test_several_workflows_are_merged_into_one_order_and_others_are_left(self, kit: Kit) -> None:
        for run_id, workflow, priority in (
            ("a", "refund", 1),
            ("b", "order", 2),
            ("c", "other", 9),
            ("d", "refund", 3),
        ):
            await kit.start(run_id, workflow=workflow, priority=priority)
        command = commands.Acquire(kit.owner(), ("refund", "order", "refund"), 10)
        assert [acquired.run.run_id for acquired in await kit.stores.runs.acquire(command)] == ["d", "b", "a"]
        assert (await kit.run("c")).status is RunStatus.PENDING

    @pytest.mark.parametrize(("limit", "workflows"), [(0, ("refund",)), (-1, ("refund",)), (5, ())])
    async def test_asking_for_nothing_gives_nothing(self, kit: Kit, limit: Any, workflows: Any) -> None:
        await kit.start()
        assert await kit.stores.runs.acquire(commands.Acquire(kit.owner(), workflows, limit)) == ()

    async def test_exactly_thirty_seconds_of_silence_are_fresh_and_one_more_tick_is_stale(self, kit: Kit) -> None:
        first = await kit.own()
        kit.clock.advance(STALE)
        assert await kit.acquire() == []
        kit.clock.advance(1)
        [taken] = await kit.acquire()
        assert (taken.lease.epoch, taken.run.takeovers, taken.run.started_at_ms) == (2, 1, kit.now - STALE - 1)
        assert await kit.record(first, kit.step()) == FenceLost()
        assert await kit.renew(first) == FenceLost()

    async def test_an_owner_proved_dead_is_not_waited_for(self, kit: Kit) -> None:
        lease = await kit.own()
        near = OwnerId(lease.owner.host_id, lease.owner.pid, "another-nonce")
        assert await kit.acquire(dead=(near, OwnerId("host-b", lease.owner.pid, lease.owner.nonce))) == []
        [taken] = await kit.acquire(dead=(near, lease.owner, lease.owner))
        assert (taken.run.run_id, taken.run.takeovers) == ("run-1", 1)

    async def test_runs_without_owner_are_taken_before_those_that_never_had_one_and_dead_ones_first(
        self, kit: Kit
    ) -> None:
        for run_id in ("silent", "dead"):
            await kit.own(run_id)
        [dead] = [o for o in await kit.stores.runs.running_owners("host-a") if o == (await kit.run("dead")).owner]
        await kit.start("fresh", priority=9)
        kit.clock.advance(STALE + 1)
        one = await kit.acquire(limit=1, dead=(dead,))
        assert [acquired.run.run_id for acquired in one] == ["dead"]
        rest = await kit.acquire(limit=2)
        assert [acquired.run.run_id for acquired in rest] == ["fresh", "silent"]

    async def test_takeovers_count_owners_lost_and_start_anew_with_progress(self, kit: Kit) -> None:
        lease = await kit.own()
        for takeovers in (1, 2):
            kit.clock.advance(STALE + 1)
            [taken] = await kit.acquire()
            assert taken.run.takeovers == takeovers
            lease = taken.lease
        assert isinstance(await kit.record(lease, kit.step()), Recorded)
        assert (await kit.run()).takeovers == 0

    async def test_going_on_after_a_park_is_no_takeover(self, kit: Kit) -> None:
        lease = await kit.own()
        assert await kit.park(lease, "released", ready_at_ms=kit.now) == RunParked()
        [taken] = await kit.acquire()
        assert (taken.run.takeovers, taken.lease.epoch, taken.run.waiting) == (0, 2, None)

    async def test_a_taken_run_no_longer_shows_what_it_waited_for(self, kit: Kit) -> None:
        lease = await kit.own()
        waiting = RunWait("needs_review", "pay#1")
        await kit.stores.runs.park(commands.Park(lease, waiting, request='{"why":"orphan"}', ready_at_ms=kit.now))
        parked = await kit.run()
        assert (parked.waiting, parked.waiting_request) == (waiting, '{"why":"orphan"}')
        [taken] = await kit.acquire()
        assert (taken.run.waiting, taken.run.waiting_request) == (None, None)
        assert taken.run == await kit.run()
        await kit.park(taken.lease, "timer", wake_at_ms=kit.now + 1)
        assert (await kit.run()).waiting_request is None

    async def test_running_owners_are_reported_once_each_and_by_host(self, kit: Kit) -> None:
        owner = kit.owner(pid=1)
        for run_id in ("a", "b", "c"):
            await kit.start(run_id)
        await kit.acquire(owner=owner, limit=2)
        other = OwnerId("host-b", 2, "n")
        await kit.acquire(owner=other)
        assert await kit.stores.runs.running_owners("host-a") == (owner,)
        assert await kit.stores.runs.running_owners("host-b") == (other,)
        assert await kit.stores.runs.running_owners("host-c") == ()
