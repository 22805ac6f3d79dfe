"""``acquire`` and ``wake``: who gets which run, and when."""

from dataclasses import replace

import pytest

from belay_core import commands
from belay_core.ids import RunId
from belay_core.outcomes.engine import News, Parked, Recorded, Renewed
from belay_core.outcomes.runs import FenceLost
from belay_core.records.owner import OwnerId
from belay_core.records.run import CreateOptions, RunStatus
from belay_core.records.step_record import StepState
from belay_core.records.workflow_run import Waiting

STALE = 30_000


async def test_a_run_is_taken_once_with_what_its_owner_needs(kit):
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


async def test_runs_come_by_priority_then_by_the_moment_they_were_ready_then_by_id(kit):
    for run_id, priority, at in (("c", 0, 5), ("b", 0, 5), ("a", 0, 6), ("z", 9, 9), ("y", 9, 8)):
        await kit.start(run_id, priority=priority, run_at_ms=kit.now + at)
    kit.clock.advance(10)
    assert [acquired.run.run_id for acquired in await kit.acquire(limit=3)] == ["y", "z", "b"]
    assert [acquired.run.run_id for acquired in await kit.acquire()] == ["c", "a"]


async def test_several_workflows_are_merged_into_one_order_and_others_are_left(kit):
    for run_id, workflow, priority in (("a", "refund", 1), ("b", "order", 2), ("c", "other", 9), ("d", "refund", 3)):
        await kit.start(run_id, workflow=workflow, priority=priority)
    command = commands.Acquire(kit.owner(), ("refund", "order", "refund"), 10)
    assert [acquired.run.run_id for acquired in await kit.engine.acquire(command)] == ["d", "b", "a"]
    assert (await kit.run("c")).status is RunStatus.PENDING


@pytest.mark.parametrize(("limit", "workflows"), [(0, ("refund",)), (-1, ("refund",)), (5, ())])
async def test_asking_for_nothing_gives_nothing(kit, limit, workflows):
    await kit.start()
    assert await kit.engine.acquire(commands.Acquire(kit.owner(), workflows, limit)) == ()


async def test_a_run_made_by_the_contract_has_no_workflow_and_is_never_taken(kit):
    await kit.stores.runs.create(RunId("bare"), "{}", CreateOptions())
    assert await kit.acquire() == []


async def test_exactly_thirty_seconds_of_silence_are_fresh_and_one_more_tick_is_stale(kit):
    first = await kit.own()
    kit.clock.advance(STALE)
    assert await kit.acquire() == []
    kit.clock.advance(1)
    [taken] = await kit.acquire()
    assert (taken.lease.epoch, taken.run.takeovers, taken.run.started_at_ms) == (2, 1, kit.now - STALE - 1)
    assert await kit.record(first, kit.step()) == FenceLost()
    assert await kit.renew(first) == FenceLost()


async def test_an_owner_proved_dead_is_not_waited_for(kit):
    lease = await kit.own()
    near = OwnerId(lease.owner.host_id, lease.owner.pid, "another-nonce")
    assert await kit.acquire(dead=(near, OwnerId("host-b", lease.owner.pid, lease.owner.nonce))) == []
    [taken] = await kit.acquire(dead=(near, lease.owner, lease.owner))
    assert (taken.run.run_id, taken.run.takeovers) == ("run-1", 1)


async def test_runs_without_owner_are_taken_before_those_that_never_had_one_and_dead_ones_first(kit):
    for run_id in ("silent", "dead"):
        await kit.own(run_id)
    [dead] = [o for o in await kit.engine.running_owners("host-a") if o == (await kit.run("dead")).owner]
    await kit.start("fresh", priority=9)
    kit.clock.advance(STALE + 1)
    one = await kit.acquire(limit=1, dead=(dead,))
    assert [acquired.run.run_id for acquired in one] == ["dead"]
    rest = await kit.acquire(limit=2)
    assert [acquired.run.run_id for acquired in rest] == ["fresh", "silent"]


async def test_takeovers_count_owners_lost_and_start_anew_with_progress(kit):
    lease = await kit.own()
    for takeovers in (1, 2):
        kit.clock.advance(STALE + 1)
        [taken] = await kit.acquire()
        assert taken.run.takeovers == takeovers
        lease = taken.lease
    assert isinstance(await kit.record(lease, kit.step()), Recorded)
    assert (await kit.run()).takeovers == 0


async def test_going_on_after_a_park_is_no_takeover(kit):
    lease = await kit.own()
    assert await kit.park(lease, "released", ready_at_ms=kit.now) == Parked()
    [taken] = await kit.acquire()
    assert (taken.run.takeovers, taken.lease.epoch, taken.run.waiting) == (0, 2, None)


async def test_a_taken_run_no_longer_shows_what_it_waited_for(kit):
    lease = await kit.own()
    waiting = Waiting("needs_review", "pay#1")
    await kit.engine.park(commands.Park(lease, waiting, request='{"why":"orphan"}', ready_at_ms=kit.now))
    parked = await kit.run()
    assert (parked.waiting, parked.waiting_request) == (waiting, '{"why":"orphan"}')
    [taken] = await kit.acquire()
    assert (taken.run.waiting, taken.run.waiting_request) == (None, None)
    assert taken.run == await kit.run()
    await kit.park(taken.lease, "timer", wake_at_ms=kit.now + 1)
    assert (await kit.run()).waiting_request is None


async def test_a_timer_wakes_its_run_when_due_and_only_once(kit):
    lease = await kit.own()
    assert await kit.park(lease, "timer", token="sleep#1", wake_at_ms=kit.now + 100) == Parked()
    kit.clock.advance(99)
    assert (await kit.engine.wake(commands.Wake())).count == 0
    assert await kit.acquire() == []
    kit.clock.advance(1)
    assert (await kit.engine.wake(commands.Wake())).count == 1
    assert (await kit.engine.wake(commands.Wake())).count == 0
    [taken] = await kit.acquire()
    assert taken.run.run_id == "run-1"
    assert await kit.kinds() == ["created", "suspended", "woken"]


async def test_waking_is_bounded_and_begins_with_what_is_due_longest(kit):
    for number, wake in enumerate((30, 10, 20)):
        lease = await kit.own(f"run-{number}")
        await kit.park(lease, "timer", wake_at_ms=kit.now + wake)
    kit.clock.advance(50)
    assert (await kit.engine.wake(commands.Wake(limit=2))).count == 2
    assert sorted(acquired.run.run_id for acquired in await kit.acquire()) == ["run-1", "run-2"]
    assert (await kit.engine.wake(commands.Wake(limit=0))).count == 0


async def test_a_run_parked_for_a_later_retry_still_wakes_by_its_earlier_timer(kit):
    lease = await kit.own()
    await kit.park(lease, "backoff", wake_at_ms=kit.now + 10, ready_at_ms=kit.now + 9_000)
    kit.clock.advance(10)
    assert (await kit.engine.wake(commands.Wake())).count == 1
    assert (await kit.run()).ready_at_ms == kit.now


async def test_a_run_that_was_let_go_is_not_taken_until_something_happens(kit):
    lease = await kit.own()
    await kit.ask(lease)
    assert await kit.park(lease) == Parked()
    kit.clock.advance(STALE * 100)
    assert await kit.acquire() == []
    await kit.decide()
    [taken] = await kit.acquire()
    assert taken.run.run_id == "run-1"


async def test_running_owners_are_told_once_each_and_by_host(kit):
    owner = kit.owner(pid=1)
    for run_id in ("a", "b", "c"):
        await kit.start(run_id)
    await kit.acquire(owner=owner, limit=2)
    other = OwnerId("host-b", 2, "n")
    await kit.acquire(owner=other)
    assert await kit.engine.running_owners("host-a") == (owner,)
    assert await kit.engine.running_owners("host-b") == (other,)
    assert await kit.engine.running_owners("host-c") == ()


async def test_renewing_keeps_a_lease_and_never_moves_its_stamp_back(kit):
    lease = await kit.own()
    began = kit.now
    kit.clock.advance(STALE)
    assert await kit.renew(lease) == Renewed(None, None)
    kit.clock.advance(STALE)
    assert await kit.acquire() == []
    kit.clock.set(began)
    assert await kit.renew(lease) == Renewed(None, None)
    assert (await kit.run()).heartbeat_at_ms == began + STALE


async def test_renewal_answers_each_lease_in_the_order_given(kit):
    leases = [await kit.own(f"run-{number}") for number in range(3)]
    kit.clock.advance(STALE + 1)
    [second] = [a.lease for a in await kit.acquire(limit=1, dead=(leases[1].owner,))]
    await kit.engine.cancel(commands.Cancel(RunId("run-2")))
    gone = type(second)(RunId("nowhere"), second.owner, 1)
    answers = await kit.engine.renew(commands.Renew((leases[2], gone, leases[1], second, leases[0])))
    assert [type(answer).__name__ for answer in answers] == [
        "Renewed",
        "RunNotFound",
        "FenceLost",
        "Renewed",
        "Renewed",
    ]
    assert answers[0] == Renewed(kit.now, kit.now)
    assert await kit.engine.renew(commands.Renew(())) == ()


@pytest.mark.parametrize("chunk", [1, 2, 500])
async def test_any_number_of_leases_is_renewed_and_each_answered_for_itself(kit, monkeypatch, chunk):
    monkeypatch.setattr("belay_drivers.sql.engine_store.owned.CHUNK", chunk)
    leases = [await kit.own(f"run-{number}") for number in range(5)]
    stranger = replace(leases[2], owner=replace(leases[2].owner, nonce="stranger"))
    older = replace(leases[3], epoch=0)
    kit.clock.advance(9)
    asked = (*leases[::-1], stranger, older, leases[0])
    answers = await kit.engine.renew(commands.Renew(asked))
    assert list(answers) == [*[Renewed(None, None)] * 5, FenceLost(), FenceLost(), Renewed(None, None)]
    assert {(await kit.run(lease.run_id)).heartbeat_at_ms for lease in leases} == {kit.now}


async def test_news_on_a_running_run_keeps_its_owner_from_parking_until_seen(kit):
    lease = await kit.own()
    await kit.ask(lease)
    await kit.decide()
    assert await kit.park(lease) == News()
    first = await kit.renew(lease)
    assert isinstance(first, Renewed)
    assert first.news_ms is not None
    await kit.engine.cancel(commands.Cancel(RunId("run-1")))
    second = await kit.renew(lease)
    assert second.news_ms == first.news_ms + 1
    assert await kit.park(lease, seen_ms=first.news_ms) == News()
    assert (await kit.run()).status is RunStatus.RUNNING
    assert await kit.park(lease, seen_ms=second.news_ms) == Parked()
    assert (await kit.run()).ready_at_ms is None


async def test_a_decision_makes_a_run_parked_for_later_ready_at_once(kit):
    lease = await kit.own()
    await kit.ask(lease)
    await kit.park(lease, ready_at_ms=kit.now + 60_000)
    kit.clock.advance(5)
    await kit.decide()
    assert (await kit.run()).ready_at_ms == kit.now
    assert len(await kit.acquire()) == 1


async def test_a_mark_that_was_due_earlier_is_not_put_off(kit):
    await kit.start()
    due = kit.now
    kit.clock.advance(50)
    await kit.engine.cancel(commands.Cancel(RunId("run-1")))
    assert (await kit.run()).ready_at_ms == due


async def test_an_owner_may_work_on_while_its_run_has_news(kit):
    lease = await kit.own()
    await kit.engine.cancel(commands.Cancel(RunId("run-1")))
    assert await kit.record(lease, kit.step()) == Recorded(kit.now, kit.now)
    assert await kit.record(lease, kit.step("b#1", StepState.RUNNING)) == Recorded(kit.now, kit.now)
