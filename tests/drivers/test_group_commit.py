"""Writes that share a commit: many at once, each answered for itself, none at a neighbour's cost."""

import asyncio
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepState
from belay_core.stores.attempts import Conflict, ExistingSame, Inserted, Recorded
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import Found, PendingSignal, RunParked, Settled, Started
from belay_drivers.sql.schema import tables
from belay_drivers.sql.statements.write_ops import Applied, RecordOp
from belay_drivers.sql.stores import group_commit


class Flushes:
    """What the coalescer of these stores flushes."""

    def __init__(self, stores: Any) -> None:
        self.group_commit = stores.runs._parts.group_commit
        self.sizes: list[int] = []
        self.runs: list[RunId] = []
        self.plain = 0
        self.plain_allowed = True
        self._sent = self.group_commit._sent
        self.group_commit._sent = self.sent

    async def sent(self, works):
        answers = await self._sent(works) if self.plain_allowed else [None] * len(works)
        self.sizes.append(len(works))
        self.runs += [work.fence.lease.run_id for work in works if isinstance(work, RecordOp)]
        self.plain += sum(isinstance(answer, Applied) for answer in answers)
        return answers


async def together(*calls, return_exceptions: bool = False) -> list[Any]:
    return [*await asyncio.gather(*calls, return_exceptions=return_exceptions)]


async def under_way(flushes: Flushes) -> None:
    """A write was asked for, and its flush has begun."""
    while flushes.group_commit._flushing is None or flushes.group_commit.waiting:
        await asyncio.sleep(0)


async def owned(kit, count):
    await together(*(kit.start(f"run-{number:02}") for number in range(count)))
    return [acquired.lease for acquired in await kit.acquire(limit=count)]


async def test_what_is_written_at_once_shares_a_commit_and_each_is_answered(kit):
    flushes = Flushes(kit.stores)
    leases = await owned(kit, 40)
    assert len(leases) == 40
    assert flushes.sizes == [40]
    answers = await together(*(kit.record(lease, kit.step()) for lease in leases))
    assert answers == [Recorded(None, None)] * 40
    ends = await together(*(kit.settle(lease, RunStatus.COMPLETED, result="1") for lease in leases))
    assert ends == [Settled(kit.now)] * 40
    assert flushes.sizes == [40, 40, 40]
    assert flushes.plain == 120
    for lease in leases:
        run = await kit.run(lease.run_id)
        assert (run.status, run.result) == ("completed", "1")
        assert [*(await kit.attempts(lease.run_id))] == ["fetch#1"]


async def test_one_write_goes_at_once_and_alone(kit):
    flushes = Flushes(kit.stores)
    lease = await kit.own()
    await kit.record(lease, kit.step())
    assert flushes.sizes == [1, 1]
    assert flushes.plain == 2


async def test_an_owner_without_its_lease_gets_that_outcome_and_the_neighbours_are_not_harmed(kit, raw):
    leases = await owned(kit, 6)
    await together(*(kit.record(lease, kit.step()) for lease in leases))
    await raw(kit.stores, "UPDATE belay_runs SET epoch = epoch + 1 WHERE run_id = 'run-03'")
    flushes = Flushes(kit.stores)
    answers = await together(*(kit.record(lease, kit.step("more#1")) for lease in leases))
    lost = next(place for place, lease in enumerate(leases) if lease.run_id == "run-03")
    assert [place for place, answer in enumerate(answers) if answer == FenceLost()] == [lost]
    assert answers.count(Recorded(None, None)) == 5
    assert flushes.sizes == [6]
    assert "more#1" not in await kit.attempts("run-03")


async def test_of_two_leases_of_one_run_in_one_flush_only_the_one_that_holds_writes(kit):
    lease = await kit.own()
    await kit.record(lease, kit.step("known#1"))
    kit.clock.advance(31_000)
    [taken] = await kit.acquire()
    await kit.record(taken.lease, kit.step("before#1"))
    flushes = Flushes(kit.stores)
    old, new = await together(kit.record(lease, kit.step("old#1")), kit.record(taken.lease, kit.step("new#1")))
    assert (old, new) == (FenceLost(), Recorded(None, None))
    assert flushes.sizes[0] == 2
    assert sorted(await kit.attempts()) == ["before#1", "known#1", "new#1"]


async def test_of_several_attempts_in_a_flush_all_are_stored_or_none(kit):
    leases = await owned(kit, 2)
    await kit.record(leases[0], kit.step("done#1"))
    other = kit.step("done#1", outcome='{"n":2}')
    answers = await together(
        kit.record(leases[0], kit.step("beside#1"), other), kit.record(leases[1], kit.step("a#1"), kit.step("b#1"))
    )
    assert answers == [Conflict(), Recorded(None, None)]
    assert [*(await kit.attempts(leases[0].run_id))] == ["done#1"]
    assert sorted(await kit.attempts(leases[1].run_id)) == ["a#1", "b#1"]


async def test_the_same_attempt_again_is_stored_once_and_another_is_a_conflict_also_beside_others(kit):
    leases = await owned(kit, 3)
    await together(*(kit.record(lease, kit.step()) for lease in leases))
    again = [kit.step(), kit.step(outcome='{"n":2}'), kit.step("next#1")]
    answers = await together(*(kit.record(lease, step) for lease, step in zip(leases, again, strict=True)))
    assert answers == [Recorded(None, None), Conflict(), Recorded(None, None)]


async def test_of_two_starts_with_one_key_in_one_flush_one_starts(kit):
    flushes = Flushes(kit.stores)
    answers = await together(
        *(kit.start(f"run-{number}", idempotency_key="k") for number in range(2)), kit.start("run-9")
    )
    assert sorted(type(answer).__name__ for answer in answers[:2]) == ["Found", "Started"]
    assert isinstance(answers[2], Started)
    found = next(answer for answer in answers if isinstance(answer, Found))
    assert found.run_id == next(answer for answer in answers if isinstance(answer, Started)).run_id
    assert flushes.sizes[0] == 3


async def test_a_run_with_an_open_question_is_ended_beside_others_and_its_question_withdrawn(kit):
    leases = await owned(kit, 2)
    asked = commands.Ask(leases[0], kit.gate(), kit.asked(leases[0].run_id))
    await kit.stores.approvals.ask(asked)
    ends = await together(*(kit.settle(lease, RunStatus.CANCELLED) for lease in leases))
    assert ends == [Settled(kit.now)] * 2
    assert (await kit.attempts(leases[0].run_id))["editor#1"].state is StepState.CANCELLED


def nap(kit, lease, key="sleep#1", **more):
    return kit.stores.attempts.sleep(
        commands.Sleep(lease, kit.step(key, StepState.WAITING, kind=StepKind.SLEEP, **more))
    )


async def test_waits_that_begin_at_once_share_a_commit_and_so_do_runs_that_are_parked(kit):
    leases = await owned(kit, 20)
    flushes = Flushes(kit.stores)
    asked = [kit.ask(lease, approval=f"ap-{place}") for place, lease in enumerate(leases[:10])]
    slept = [nap(kit, lease) for lease in leases[10:]]
    assert await together(*asked, *slept) == [Inserted()] * 20
    parked = await together(
        *(kit.park(lease, token="editor#1", request='{"a":1}') for lease in leases[:10]),
        *(kit.park(lease, "timer", token="sleep#1", wake_at_ms=kit.now + 5) for lease in leases[10:]),
    )
    assert parked == [RunParked()] * 20
    assert (flushes.sizes, flushes.plain) == ([20, 20], 40)
    for place, lease in enumerate(leases):
        asks, run = place < 10, await kit.run(lease.run_id)
        assert (run.status, run.owner, run.ready_at_ms) == ("suspended", None, None)
        assert (run.waiting.reason, run.waiting.token) == (("approval", "editor#1") if asks else ("timer", "sleep#1"))
        assert (run.waiting.wake_at_ms, run.waiting_request) == ((None, '{"a":1}') if asks else (kit.now + 5, None))
        between = ["asked"] if asks else []
        assert await kit.kinds(lease.run_id) == ["created", *between, "suspended"]
    assert (await kit.approval("ap-7")).run_id == leases[7].run_id
    assert len(await kit.decide("ap-7") and await kit.acquire()) == 1


async def test_a_run_is_parked_alone_and_at_once(kit):
    lease = await kit.own()
    flushes = Flushes(kit.stores)
    assert [await kit.ask(lease), await kit.park(lease)] == [Inserted(), RunParked()]
    assert (flushes.sizes, flushes.plain) == ([1, 1], 2)


@pytest.mark.parametrize("write", ["park", "ask", "sleep"])
async def test_who_lost_a_lease_is_not_let_wait_and_the_neighbours_are(kit, raw, write):
    leases = await owned(kit, 4)
    await together(*(kit.record(lease, kit.step()) for lease in leases))
    await raw(kit.stores, "UPDATE belay_runs SET epoch = epoch + 1 WHERE run_id = 'run-02'")
    flushes = Flushes(kit.stores)
    calls = {
        "park": kit.park,
        "ask": lambda lease: kit.ask(lease, approval=f"ap-{lease.run_id}"),
        "sleep": lambda lease: nap(kit, lease),
    }
    answers = await together(*(calls[write](lease) for lease in leases))
    lost = next(place for place, lease in enumerate(leases) if lease.run_id == "run-02")
    done = RunParked() if write == "park" else Inserted()
    assert answers == [FenceLost() if place == lost else done for place in range(4)]
    assert (flushes.sizes, flushes.plain) == ([4], 3)
    assert [*(await kit.attempts("run-02"))] == ["fetch#1"]
    assert (await kit.run("run-02")).status is RunStatus.RUNNING


async def test_an_owner_with_an_unread_signal_gets_that_outcome_and_the_neighbours_are_parked(kit):
    leases = await owned(kit, 3)
    await together(*(kit.ask(lease, approval=f"ap-{place}") for place, lease in enumerate(leases)))
    await together(kit.decide("ap-1"), kit.decide("ap-2"))
    seen = (await kit.renew(leases[2])).pending_signal_ms
    assert seen is not None
    flushes = Flushes(kit.stores)
    answers = await together(kit.park(leases[0]), kit.park(leases[1]), kit.park(leases[2], seen_ms=seen))
    assert answers == [RunParked(), PendingSignal(), RunParked()]
    assert (flushes.sizes, flushes.plain) == ([3], 2)
    assert (await kit.run(leases[1].run_id)).status is RunStatus.RUNNING
    assert (await kit.run(leases[2].run_id)).ready_at_ms is None
    assert await kit.park(leases[1], seen_ms=seen + 1) == PendingSignal()


async def test_a_run_that_is_parked_to_be_ready_is_ready_at_the_earlier_of_two_moments(kit):
    leases = await owned(kit, 3)
    await together(*(kit.ask(lease, approval=f"ap-{place}") for place, lease in enumerate(leases[:2])))
    await together(kit.decide("ap-0"), kit.decide("ap-1"))
    flushes = Flushes(kit.stores)
    moments = [kit.now + 9, kit.now - 9, kit.now + 9]
    parked = [kit.park(lease, "backoff", ready_at_ms=moment) for lease, moment in zip(leases, moments, strict=True)]
    assert await together(*parked) == [RunParked()] * 3
    assert flushes.plain == 3
    ready = [(await kit.run(lease.run_id)).ready_at_ms for lease in leases]
    assert ready == [kit.now, kit.now - 9, kit.now + 9]


async def test_a_wait_that_has_begun_before_is_reported_as_the_same_or_another_beside_one_that_begins(kit):
    leases = await owned(kit, 4)
    await together(kit.ask(leases[0], approval="ap-0"), kit.ask(leases[1], approval="ap-1"), nap(kit, leases[2]))
    flushes = Flushes(kit.stores)
    answers = await together(
        kit.ask(leases[0], approval="ap-0"),
        kit.ask(leases[1], approval="another"),
        nap(kit, leases[2], meta='{"other":1}'),
        nap(kit, leases[3]),
    )
    assert answers == [ExistingSame(), Conflict(), Conflict(), Inserted()]
    assert (flushes.sizes, flushes.plain) == ([4], 1)
    assert await kit.kinds(leases[1].run_id) == ["created", "asked"]


async def test_a_question_whose_name_another_run_has_takes_no_neighbour_along(kit):
    leases = await owned(kit, 3)
    await kit.ask(leases[0], approval="taken")
    answers = await together(
        kit.ask(leases[1], approval="taken"), kit.ask(leases[2], approval="free"), return_exceptions=True
    )
    assert [type(answer).__name__ for answer in answers] == ["ApprovalStoreError", "Inserted"]
    assert await kit.attempts(leases[1].run_id) == {}


async def stored_of(stores, run_id):
    """All that is stored of a run, but for its name."""

    def read(tx):
        of_runs = [table for table in tables.metadata.sorted_tables if "run_id" in table.c]
        found = [
            str(dict(row))
            for table in of_runs
            for row in tx.execute(table.select().where(table.c.run_id == run_id)).mappings()
        ]
        return [each.replace(run_id, "run") for each in found]

    return await stores.runs._database.read(read)


async def test_a_wait_is_stored_the_same_with_others_and_in_steps(kit):
    leases = await owned(kit, 2)
    kit.clock.advance(500)
    flushes = Flushes(kit.stores)
    for lease in leases:
        await kit.record(lease, kit.step())
        await kit.ask(lease, approval=f"ap-{lease.run_id}", lapse_at_ms=9)
        await nap(kit, lease)
        await kit.park(lease, "timer", token="sleep#1", wake_at_ms=kit.now + 5, request='{"a":1}')
        flushes.plain_allowed = False
    assert flushes.plain == 4
    alone, others = [await stored_of(kit.stores, lease.run_id) for lease in leases]
    assert alone == others


async def test_a_write_that_is_cancelled_before_it_is_sent_is_withdrawn(kit):
    leases = await owned(kit, 3)
    flushes = Flushes(kit.stores)
    sent = asyncio.ensure_future(kit.record(leases[2], kit.step()))
    await under_way(flushes)
    kept, gone = (asyncio.ensure_future(kit.record(lease, kit.step())) for lease in leases[:2])
    while flushes.group_commit.waiting < 2:
        await asyncio.sleep(0)
    gone.cancel()
    assert await together(sent, kept) == [Recorded(None, None)] * 2
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert flushes.sizes == [1, 1]
    assert await kit.attempts(leases[1].run_id) == {}
    assert await kit.record(leases[1], kit.step()) == Recorded(None, None)


async def test_a_write_that_is_cancelled_once_it_is_sent_is_waited_for_and_harms_nobody(kit):
    leases = await owned(kit, 3)
    flushes = Flushes(kit.stores)
    tasks = [asyncio.ensure_future(kit.record(lease, kit.step())) for lease in leases]
    while flushes.group_commit.waiting < 3:
        await asyncio.sleep(0)
    while flushes.group_commit.waiting:
        await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[1].cancel()
    done = await together(*tasks, return_exceptions=True)
    assert [done[0], done[2]] == [Recorded(None, None)] * 2
    assert isinstance(done[1], asyncio.CancelledError)
    assert len(await kit.attempts(leases[1].run_id)) == 1
    assert await kit.record(leases[1], kit.step("next#1")) == Recorded(None, None)


async def test_a_flush_that_is_cancelled_before_it_begins_holds_up_neither_writers_nor_the_end(kit):
    leases = await owned(kit, 2)
    group_commit = Flushes(kit.stores).group_commit
    first = asyncio.ensure_future(kit.record(leases[0], kit.step()))
    while group_commit._flushing is None:
        await asyncio.sleep(0)
    group_commit._flushing.cancel()
    await asyncio.wait([group_commit._flushing])
    async with asyncio.timeout(10):
        assert await together(first, kit.record(leases[1], kit.step())) == [Recorded(None, None)] * 2
        last = asyncio.ensure_future(kit.record(leases[0], kit.step("next#1")))
        while group_commit._flushing is None:
            await asyncio.sleep(0)
        last.cancel()
        group_commit._flushing.cancel()
        await together(last, return_exceptions=True)
        await group_commit.close()


async def test_a_flush_that_is_cancelled_leaves_nobody_in_the_queue(kit):
    leases = await owned(kit, 4)
    flushes = Flushes(kit.stores)
    sent = asyncio.ensure_future(kit.record(leases[0], kit.step()))
    await under_way(flushes)
    waiting = [asyncio.ensure_future(kit.record(lease, kit.step())) for lease in leases[1:]]
    while flushes.group_commit.waiting < 3:
        await asyncio.sleep(0)
    flushes.group_commit._flushing.cancel()
    async with asyncio.timeout(10):
        assert await together(sent, *waiting) == [Recorded(None, None)] * 4
    for lease in leases:
        assert [*(await kit.attempts(lease.run_id))] == ["fetch#1"]


async def test_answers_that_are_too_few_are_a_defect_everybody_hears_of(kit, monkeypatch):
    leases = await owned(kit, 3)
    group_commit = Flushes(kit.stores).group_commit

    async def too_few(works):
        return [None] * (len(works) - 1)

    monkeypatch.setattr(group_commit, "_sent", too_few)
    async with asyncio.timeout(10):
        calls = [kit.record(lease, kit.step()) for lease in leases]
        answers = await together(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError] * 3


async def test_first_come_is_first_served(kit, monkeypatch):
    leases = await owned(kit, 9)
    flushes = Flushes(kit.stores)
    monkeypatch.setattr(group_commit, "MOST_ROWS", 2)
    asked = []

    async def one(number):
        answer = await kit.record(leases[number], kit.step())
        if number < 4:
            # Whoever comes now finds others waiting.
            asked.append(asyncio.ensure_future(one(number + 5)))
        return answer

    answers = await together(*(one(number) for number in range(5)))
    assert flushes.group_commit.waiting > 0
    answers += await together(*asked)
    assert answers == [Recorded(None, None)] * 9
    assert max(flushes.sizes) == 2
    assert flushes.runs == [lease.run_id for lease in leases]
    assert flushes.group_commit.waiting == 0


async def test_how_many_writes_wait_is_seen_from_outside(kit):
    leases = await owned(kit, 4)
    sent = asyncio.ensure_future(kit.record(leases[3], kit.step()))
    await under_way(Flushes(kit.stores))
    assert kit.stores.writer.queued == 0
    gone, *others = (asyncio.ensure_future(kit.record(lease, kit.step())) for lease in leases[:3])
    while kit.stores.writer.queued < 3:
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert kit.stores.writer.queued == 2
    await together(sent, *others)
    assert kit.stores.writer.queued == 0


async def test_a_flush_is_bounded_in_rows_and_in_length(kit, monkeypatch):
    monkeypatch.setattr(group_commit, "MOST_ROWS", 4)
    monkeypatch.setattr(group_commit, "MOST_CHARACTERS", 1_000)
    leases = await owned(kit, 9)
    flushes = Flushes(kit.stores)
    await together(*(kit.record(lease, kit.step()) for lease in leases))
    assert flushes.sizes == [4, 4, 1]
    long = '"' + "x" * 900 + '"'
    await together(*(kit.record(lease, kit.step("long#1", outcome=long)) for lease in leases[:3]))
    assert flushes.sizes[3:] == [1, 1, 1]


async def test_an_unknown_run_in_a_flush_is_reported(kit):
    lease = await kit.own()
    nobody = Lease(RunId("nobody"), OwnerId("host-a", 7, "n"), 1)
    answers = await together(kit.record(nobody, kit.step()), kit.record(lease, kit.step()))
    assert type(answers[0]).__name__ == "RunNotFound"
    assert answers[1] == Recorded(None, None)
