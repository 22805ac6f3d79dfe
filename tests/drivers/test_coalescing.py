"""Writes that share a commit: many at once, each answered for itself, none at a neighbour's cost."""

import asyncio
from typing import Any

import pytest

from belay_core import commands
from belay_core.ids import RunId
from belay_core.outcomes.attempts import Conflict
from belay_core.outcomes.engine import Found, Recorded, Settled, Started
from belay_core.outcomes.runs import FenceLost
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState
from belay_drivers.sql import coalescing
from belay_drivers.sql.bulk import Plain, Recording


class Flushes:
    """What the coalescer of these stores flushes."""

    def __init__(self, stores: Any) -> None:
        self.coalescer = stores.engine._parts.coalescer
        self.sizes: list[int] = []
        self.runs: list[RunId] = []
        self.plain = 0
        self._sent = self.coalescer._sent
        self.coalescer._sent = self.sent

    async def sent(self, works):
        answers = await self._sent(works)
        self.sizes.append(len(works))
        self.runs += [work.fence.lease.run_id for work in works if isinstance(work, Recording)]
        self.plain += sum(isinstance(answer, Plain) for answer in answers)
        return answers


async def together(*calls, return_exceptions: bool = False) -> list[Any]:
    return [*await asyncio.gather(*calls, return_exceptions=return_exceptions)]


async def under_way(flushes: Flushes) -> None:
    """A write was asked for, and its flush has begun."""
    while flushes.coalescer._flushing is None or flushes.coalescer.waiting:
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


async def test_who_lost_a_lease_is_told_and_the_neighbours_are_not_harmed(kit, raw):
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
    await kit.engine.ask(asked)
    ends = await together(*(kit.settle(lease, RunStatus.CANCELLED) for lease in leases))
    assert ends == [Settled(kit.now)] * 2
    assert (await kit.attempts(leases[0].run_id))["editor#1"].state is StepState.CANCELLED


async def test_a_write_that_is_cancelled_before_it_is_sent_is_withdrawn(kit):
    leases = await owned(kit, 3)
    flushes = Flushes(kit.stores)
    sent = asyncio.ensure_future(kit.record(leases[2], kit.step()))
    await under_way(flushes)
    kept, gone = (asyncio.ensure_future(kit.record(lease, kit.step())) for lease in leases[:2])
    while flushes.coalescer.waiting < 2:
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
    while flushes.coalescer.waiting < 3:
        await asyncio.sleep(0)
    while flushes.coalescer.waiting:
        await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[1].cancel()
    done = await together(*tasks, return_exceptions=True)
    assert [done[0], done[2]] == [Recorded(None, None)] * 2
    assert isinstance(done[1], asyncio.CancelledError)
    assert len(await kit.attempts(leases[1].run_id)) == 1
    assert await kit.record(leases[1], kit.step("next#1")) == Recorded(None, None)


async def test_first_come_is_first_served(kit, monkeypatch):
    leases = await owned(kit, 9)
    flushes = Flushes(kit.stores)
    monkeypatch.setattr(coalescing, "MOST_ROWS", 2)
    asked = []

    async def one(number):
        answer = await kit.record(leases[number], kit.step())
        if number < 4:
            # Whoever comes now finds others waiting.
            asked.append(asyncio.ensure_future(one(number + 5)))
        return answer

    answers = await together(*(one(number) for number in range(5)))
    assert flushes.coalescer.waiting > 0
    answers += await together(*asked)
    assert answers == [Recorded(None, None)] * 9
    assert max(flushes.sizes) == 2
    assert flushes.runs == [lease.run_id for lease in leases]
    assert flushes.coalescer.waiting == 0


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
    monkeypatch.setattr(coalescing, "MOST_ROWS", 4)
    monkeypatch.setattr(coalescing, "MOST_CHARACTERS", 1_000)
    leases = await owned(kit, 9)
    flushes = Flushes(kit.stores)
    await together(*(kit.record(lease, kit.step()) for lease in leases))
    assert flushes.sizes == [4, 4, 1]
    long = '"' + "x" * 900 + '"'
    await together(*(kit.record(lease, kit.step("long#1", outcome=long)) for lease in leases[:3]))
    assert flushes.sizes[3:] == [1, 1, 1]


async def test_an_unknown_run_in_a_flush_is_told_so(kit):
    lease = await kit.own()
    nobody = Lease(RunId("nobody"), OwnerId("host-a", 7, "n"), 1)
    answers = await together(kit.record(nobody, kit.step()), kit.record(lease, kit.step()))
    assert type(answers[0]).__name__ == "RunNotFound"
    assert answers[1] == Recorded(None, None)
