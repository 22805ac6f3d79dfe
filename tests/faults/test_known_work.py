"""A write knows its own work again, and nobody else's, when the reply to it was lost."""

import asyncio
from contextlib import suppress

import pytest

from belay_core.records import commands
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.step_record import StepState
from belay_core.stores.attempts import Conflict, Recorded
from belay_core.stores.run_contract import Transitioned
from belay_core.stores.runs import NotInReview, Resolved
from belay_drivers.postgres import open_postgres
from belay_testing.conformance.kit import Kit
from tests.faults.calls import BARE, OWNER, RUN, bare
from tests.faults.wire import WireProxy


@pytest.fixture
async def wired(belay_postgres, belay_clock, belay_ids):
    wire = WireProxy(belay_postgres.url)
    async with wire.running() as url, open_postgres(url, clock=belay_clock, ids=belay_ids) as stores:
        yield wire, Kit(stores, belay_clock)


def move(kit, state, status=RunStatus.RUNNING):
    return kit.stores.runs.transition_owned(BARE, OWNER, status, state)


async def test_a_move_whose_reply_was_lost_is_not_made_again_over_the_owners_next(wired):
    wire, kit = wired
    await bare(kit)
    wire.arm("reply")
    answers = await asyncio.gather(move(kit, '"first"'), move(kit, '"second"'))
    assert wire.cuts == 1
    assert list(answers) == [Transitioned(), Transitioned()]
    assert (await kit.stores.runs.get(BARE)).state_json == '"second"'


async def test_a_move_is_not_taken_for_done_because_one_given_up_before_it_arrived(wired):
    wire, kit = wired
    await bare(kit)
    kit.stores.runs._database.patience = 0.0
    wire.hold(arrives=True)
    given_up = asyncio.ensure_future(move(kit, '"given up"'))
    await asyncio.wait_for(wire.held.wait(), 10)
    given_up.cancel()
    with suppress(asyncio.CancelledError):
        await given_up
    wire.arm("request")
    following = asyncio.ensure_future(move(kit, '"following"'))
    await asyncio.sleep(0.1)
    assert not following.done(), "it has to wait for the one that may still arrive"
    wire.release()
    assert await following == Transitioned()
    assert wire.cuts == 2
    assert (await kit.stores.runs.get(BARE)).state_json == '"following"'


async def test_a_record_is_not_taken_for_done_because_one_that_was_refused_arrived_after_that(wired):
    wire, kit = wired
    lease = await kit.own()
    await kit.record(lease, kit.step("a#1"))
    kit.stores.runs._database.patience = 0.3
    wire.hold(arrives=True)
    refused = asyncio.ensure_future(kit.record(lease, kit.step("a#1", outcome="2")))
    await asyncio.wait_for(wire.held.wait(), 10)

    async def arrives():
        wire.release()
        await wire.settled.wait()

    wire.arm("request", arrives)
    following = asyncio.ensure_future(kit.record(lease, kit.step("b#1")))
    assert await refused == Conflict()
    assert isinstance(await following, Recorded)
    assert wire.cuts == 2


async def test_a_suspension_is_known_again_after_somebody_has_resumed_the_run(wired, belay_postgres, belay_clock):
    wire, kit = wired
    await bare(kit)
    async with open_postgres(belay_postgres.url, clock=belay_clock) as other:
        taker = OwnerId("h", 2, "m")
        wire.arm("reply", lambda: other.runs.claim_and_own(BARE, RunSnapshot(RunStatus.SUSPENDED), taker, kit.now))
        assert await move(kit, None, RunStatus.SUSPENDED) == Transitioned()
        assert (await other.runs.get(BARE)).owner == taker


async def test_a_word_on_the_run_itself_is_taken_once_until_a_worker_has_acted_on_it(wired):
    _, kit = wired
    await kit.park(await kit.own(), "needs_review")
    word = commands.Resolve(RUN, commands.Retry(), "ada")
    assert isinstance(await kit.stores.runs.resolve(word), Resolved)
    assert await kit.stores.runs.resolve(word) == NotInReview()
    assert (await kit.kinds()).count("resolved") == 1
    [taken] = await kit.acquire()
    await kit.park(taken.lease, "needs_review")
    assert isinstance(await kit.stores.runs.resolve(word), Resolved)


async def test_a_word_on_the_run_may_follow_one_on_its_orphan(wired):
    _, kit = wired
    lease = await kit.own()
    await kit.record(lease, kit.step("pay#1", StepState.ORPHANED, recorded=None))
    await kit.park(lease, "needs_review")
    happened = commands.Resolve(RUN, commands.Happened("1"), "ada", "pay#1")
    assert isinstance(await kit.stores.runs.resolve(happened), Resolved)
    assert await kit.stores.runs.resolve(happened) == NotInReview()
    retry = commands.Resolve(RUN, commands.Retry(), "ada")
    assert isinstance(await kit.stores.runs.resolve(retry), Resolved)
    assert await kit.stores.runs.resolve(retry) == NotInReview()
