"""``park``, ``settle``, ``cancel`` and ``resolve``: how runs stop, and how they go on."""

import asyncio
import json

import pytest

from belay_core import commands
from belay_core.ids import RunId
from belay_core.outcomes.engine import News, NotInReview, Parked, Recorded, Resolved, Settled
from belay_core.outcomes.runs import AlreadyRequested, CancelRequested, FenceLost, NotFound, Terminal
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState
from belay_core.records.workflow_run import Waiting

CANCEL = commands.Cancel(RunId("run-1"), "ada")


async def test_a_parked_run_shows_what_it_waits_for_and_has_no_owner(kit):
    lease = await kit.own()
    waiting = Waiting("timer", "sleep#1", kit.now + 500)
    assert await kit.engine.park(commands.Park(lease, waiting, request='{"q":1}')) == Parked()
    run = await kit.run()
    assert (run.status, run.waiting, run.waiting_request) == (RunStatus.SUSPENDED, waiting, '{"q":1}')
    assert (run.owner, run.heartbeat_at_ms, run.ready_at_ms) == (None, None, None)
    entry = (await kit.engine.journal(RunId("run-1")))[-1]
    facts = {"reason": "timer", "token": "sleep#1", "wake_at_ms": kit.now + 500}
    assert (entry.kind, json.loads(entry.facts)) == ("suspended", facts)


async def test_what_the_owner_notes_stands_before_how_it_let_go(kit):
    lease = await kit.own()
    await kit.park(lease, "released", ready_at_ms=kit.now, notes=('{"n":1}', '{"n":2}'))
    [taken] = await kit.acquire()
    await kit.settle(taken.lease, RunStatus.COMPLETED, notes=('{"n":3}',))
    entries = await kit.engine.journal(RunId("run-1"))
    told = [(entry.kind, json.loads(entry.facts).get("n")) for entry in entries[1:]]
    assert told == [("noted", 1), ("noted", 2), ("suspended", None), ("noted", 3), ("settled", None)]
    assert [entry.entry for entry in entries] == sorted({entry.entry for entry in entries})


async def test_a_run_parked_to_go_on_keeps_the_earlier_of_its_moments_and_needs_no_news_read(kit):
    lease = await kit.own()
    await kit.engine.cancel(CANCEL)
    assert await kit.park(lease, "released", ready_at_ms=kit.now + 50) == Parked()
    assert (await kit.run()).ready_at_ms == kit.now
    [taken] = await kit.acquire()
    assert await kit.park(taken.lease, "released", ready_at_ms=kit.now + 50) == Parked()
    assert (await kit.run()).ready_at_ms == kit.now + 50


async def test_a_settled_run_shows_its_end_and_never_changes(kit):
    lease = await kit.own()
    await kit.park(lease, "timer", wake_at_ms=kit.now, request="1", ready_at_ms=kit.now)
    [taken] = await kit.acquire()
    kit.clock.advance(3)
    answer = await kit.settle(taken.lease, RunStatus.FAILED, error='{"type":"X","message":"m"}')
    assert answer == Settled(kit.now)
    run = await kit.run()
    assert (run.status, run.finished_at_ms) == (RunStatus.FAILED, kit.now)
    assert (run.error, run.result) == ('{"type":"X","message":"m"}', None)
    assert (run.owner, run.heartbeat_at_ms, run.ready_at_ms, run.waiting) == (None, None, None, None)
    kit.clock.advance(10**9)
    assert await kit.acquire() == []
    assert await kit.settle(taken.lease, RunStatus.COMPLETED) == FenceLost()
    assert await kit.engine.cancel(CANCEL) == Terminal(RunStatus.FAILED)
    assert await kit.run() == run


async def test_a_run_with_news_is_not_settled_before_they_are_seen(kit):
    lease = await kit.own()
    await kit.ask(lease)
    await kit.decide()
    assert await kit.settle(lease, RunStatus.COMPLETED) == News()
    seen = (await kit.renew(lease)).news_ms
    assert isinstance(await kit.settle(lease, RunStatus.COMPLETED, seen_ms=seen), Settled)


async def test_a_run_asked_to_stop_can_only_be_settled_as_cancelled(kit):
    lease = await kit.own()
    await kit.engine.cancel(CANCEL)
    seen = (await kit.renew(lease)).news_ms
    for status in (RunStatus.COMPLETED, RunStatus.FAILED):
        assert await kit.settle(lease, status, seen_ms=seen) == News()
    assert isinstance(await kit.settle(lease, RunStatus.CANCELLED, seen_ms=seen), Settled)
    assert (await kit.run()).cancel_requested_at_ms == kit.now


async def test_after_news_the_lease_still_writes(kit):
    lease = await kit.own()
    await kit.engine.cancel(CANCEL)
    assert await kit.park(lease) == News()
    assert isinstance(await kit.record(lease, kit.step()), Recorded)
    assert await kit.settle(lease, RunStatus.COMPLETED) == News()
    assert isinstance(await kit.record(lease, kit.step("b#1")), Recorded)


async def test_the_first_cancel_request_stands_and_survives_a_takeover(kit):
    first = await kit.own()
    at = kit.now
    assert await kit.engine.cancel(CANCEL) == CancelRequested(at)
    kit.clock.advance(30_001)
    assert await kit.engine.cancel(CANCEL) == AlreadyRequested(at)
    [taken] = await kit.acquire()
    assert taken.run.cancel_requested_at_ms == at
    assert await kit.renew(first) == FenceLost()
    assert await kit.engine.cancel(commands.Cancel(RunId("nowhere"))) == NotFound()
    entries = [entry for entry in await kit.engine.journal(RunId("run-1")) if entry.kind == "cancel_requested"]
    assert [json.loads(entry.facts) for entry in entries] == [{"by": "ada"}]


async def test_a_cancel_request_makes_a_waiting_run_ready(kit):
    lease = await kit.own()
    await kit.park(lease, "timer", wake_at_ms=kit.now + 10**9)
    await kit.engine.cancel(CANCEL)
    [taken] = await kit.acquire()
    assert taken.run.cancel_requested_at_ms == kit.now


async def test_of_many_cancel_requests_one_counts(kit):
    await kit.start()
    answers = await asyncio.gather(*(kit.engine.cancel(CANCEL) for _ in range(20)))
    assert sum(isinstance(answer, CancelRequested) for answer in answers) == 1
    assert set(answers) == {CancelRequested(kit.now), AlreadyRequested(kit.now)}


async def orphaned(kit, *, parked=True):
    lease = await kit.own()
    orphan = kit.step("pay#1", StepState.ORPHANED, recorded=None, finished_at_ms=None, meta='{"a":1}')
    await kit.record(lease, orphan)
    if parked:
        await kit.engine.park(commands.Park(lease, Waiting("needs_review", "pay#1")))
    return lease


def word(resolution, step_key: str | None = "pay#1", run_id="run-1"):
    return commands.Resolve(RunId(run_id), resolution, "ada", step_key)


@pytest.mark.parametrize("parked", [True, False])
async def test_what_an_operator_says_of_an_orphan_is_kept_beside_it_and_the_run_goes_on(kit, parked):
    lease = await orphaned(kit, parked=parked)
    kit.clock.advance(5)
    assert await kit.engine.resolve(word(commands.Happened('{"id":9}'))) == Resolved(kit.now)
    attempt = (await kit.attempts())["pay#1"]
    assert (attempt.state, attempt.outcome, attempt.recorded) == (StepState.ORPHANED, '{"id":9}', None)
    assert (attempt.resolved_by, attempt.resolved_at_ms) == ("ada", kit.now)
    assert json.loads(attempt.meta) == {"a": 1, "resolution": "happened"}
    assert (await kit.run()).ready_at_ms == kit.now
    if not parked:
        assert await kit.park(lease) == News()
    entry = (await kit.engine.journal(RunId("run-1")))[-1]
    facts = {"resolution": "happened", "by": "ada", "step_key": "pay#1"}
    assert (entry.kind, json.loads(entry.facts)) == ("resolved", facts)


async def test_an_orphan_is_resolved_once(kit):
    await orphaned(kit)
    assert isinstance(await kit.engine.resolve(word(commands.Retry())), Resolved)
    assert json.loads((await kit.attempts())["pay#1"].meta) == {"a": 1, "resolution": "retry"}
    for again in (commands.Retry(), commands.Happened("1"), commands.GiveUp()):
        assert await kit.engine.resolve(word(again)) == NotInReview()


async def test_the_next_owner_acts_on_the_word_and_it_stays_readable(kit):
    await orphaned(kit)
    await kit.engine.resolve(word(commands.Happened("9")))
    resolved_at = kit.now
    [taken] = await kit.acquire()
    closed = kit.step("pay#1", outcome="9", recorded=1, meta='{"a":1}')
    assert isinstance(await kit.record(taken.lease, closed), Recorded)
    attempt = (await kit.attempts())["pay#1"]
    assert (attempt.state, attempt.resolved_by, attempt.resolved_at_ms) == ("succeeded", "ada", resolved_at)
    assert await kit.engine.resolve(word(commands.Retry())) == NotInReview()


async def test_only_the_latest_attempt_of_a_key_can_be_resolved(kit):
    lease = await orphaned(kit, parked=False)
    await kit.record(lease, kit.step("pay#1", StepState.RUNNING, attempt=2))
    assert await kit.engine.resolve(word(commands.Retry())) == NotInReview()


@pytest.mark.parametrize("step_key", ["pay#1", None])
async def test_giving_up_fails_the_run_and_withdraws_what_it_asks(kit, step_key):
    lease = await orphaned(kit, parked=False)
    await kit.ask(lease)
    assert await kit.engine.resolve(word(commands.GiveUp(), step_key)) == NotInReview()
    await kit.engine.park(commands.Park(lease, Waiting("needs_review", "pay#1")))
    kit.clock.advance(1)
    assert await kit.engine.resolve(word(commands.GiveUp(), step_key)) == Resolved(kit.now)
    run = await kit.run()
    assert (run.status, run.finished_at_ms, run.ready_at_ms, run.waiting) == ("failed", kit.now, None, None)
    assert json.loads(run.error)["type"] == "GivenUp"
    assert (await kit.engine.find_approval("ap-1")).decision == "withdrawn"
    assert (await kit.attempts())["editor#1"].state is StepState.CANCELLED
    assert await kit.acquire() == []
    assert await kit.engine.resolve(word(commands.GiveUp(), step_key)) == NotInReview()


async def test_a_run_in_review_as_a_whole_goes_on_with_its_takeovers_forgiven(kit):
    lease = await kit.own()
    for _ in range(2):
        kit.clock.advance(30_001)
        [taken] = await kit.acquire()
        lease = taken.lease
    await kit.engine.park(commands.Park(lease, Waiting("needs_review"), request='{"why":"poison"}'))
    assert await kit.engine.resolve(word(commands.Happened("1"), None)) == NotInReview()
    assert isinstance(await kit.engine.resolve(word(commands.Retry(), None)), Resolved)
    assert (await kit.run()).takeovers == 0
    assert len(await kit.acquire()) == 1


async def test_there_is_nothing_to_resolve_where_nothing_is_in_review(kit):
    assert await kit.engine.resolve(word(commands.Retry())) == NotFound()
    lease = await kit.own()
    for resolution in (commands.Retry(), commands.Happened("1"), commands.GiveUp()):
        assert await kit.engine.resolve(word(resolution)) == NotInReview()
        assert await kit.engine.resolve(word(resolution, None)) == NotInReview()
    await kit.ask(lease)
    await kit.park(lease)
    assert await kit.engine.resolve(word(commands.Retry(), None)) == NotInReview()
    assert await kit.kinds() == ["created", "asked", "suspended"]
