"""A stored attempt is kept, and only the owner of a run stores one."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import pytest

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepState
from belay_core.stores.attempts import Conflict, ExistingSame, Inserted, Recorded, RunNotFound
from belay_core.stores.run_contract import FenceLost
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit

DONE: Final = Recorded(None, None)


class RecordChapter(Chapter):
    """``record`` and ``sleep``."""

    async def test_an_attempt_comes_back_as_it_was_recorded_with_the_epoch_it_was_written_under(self, kit: Kit) -> None:
        lease = await kit.own()
        step = kit.step(
            "people#1[0]/charge#1",
            StepState.FAILED,
            attempt=3,
            idempotent=False,
            input_digest="ab",
            error='{"type":"X"}',
            meta='{"retry_at_ms":5}',
            recorded=7,
        )
        assert await kit.record(lease, step) == DONE
        assert (await kit.history()).attempts == (replace(step, epoch=1),)

    async def test_the_same_record_twice_is_stored_once_and_another_is_a_conflict(self, kit: Kit) -> None:
        lease = await kit.own()
        step = kit.step()
        assert await kit.record(lease, step) == DONE
        assert await kit.record(lease, step) == DONE
        for other in (
            replace(step, outcome='{"n": 1}'),
            replace(step, state=StepState.FAILED),
            replace(step, recorded=2),
            replace(step, error="1"),
            replace(step, input_digest="x"),
            replace(step, meta='{"a":1}'),
            replace(step, finished_at_ms=kit.now + 1),
            replace(step, idempotent=False),
        ):
            assert await kit.record(lease, other) == Conflict()
        assert (await kit.history()).attempts == (replace(step, epoch=1),)

    @pytest.mark.parametrize("state", [StepState.RUNNING, StepState.WAITING, StepState.ORPHANED])
    async def test_an_open_attempt_is_replaced_by_its_end(self, kit: Kit, state: Any) -> None:
        lease = await kit.own()
        begun = kit.step(state=state, outcome=None)
        assert await kit.record(lease, begun) == DONE
        ended = kit.step(recorded=4)
        assert await kit.record(lease, ended) == DONE
        assert (await kit.history()).attempts == (replace(ended, epoch=1),)

    async def test_several_attempts_are_stored_all_or_none(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.record(lease, kit.step("b#1"))
        several = (kit.step("a#1"), kit.step("b#1", outcome="2"), kit.step("c#1"))
        assert await kit.record(lease, *several) == Conflict()
        assert list(await kit.attempts()) == ["b#1"]
        assert await kit.record(lease, several[0], kit.step("b#1"), several[2]) == DONE
        assert list(await kit.attempts()) == ["a#1", "b#1", "c#1"]

    async def test_an_orphan_is_closed_and_the_next_attempt_begun_in_one_write(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.record(lease, kit.step(state=StepState.RUNNING))
        closed = kit.step(state=StepState.ORPHANED, recorded=None)
        begun = kit.step(state=StepState.RUNNING, attempt=2)
        assert await kit.record(lease, closed, begun) == DONE
        stored = (await kit.history()).attempts
        assert [(attempt.attempt, attempt.state) for attempt in stored] == [(1, "orphaned"), (2, "running")]

    async def test_recording_nothing_still_keeps_the_lease(self, kit: Kit) -> None:
        lease = await kit.own()
        kit.clock.advance(20_000)
        assert await kit.record(lease) == DONE
        assert (await kit.run()).heartbeat_at_ms == kit.now

    @pytest.mark.parametrize("conflict", [False, True])
    async def test_every_owned_write_keeps_the_lease_also_one_that_conflicts(self, kit: Kit, conflict: Any) -> None:
        lease = await kit.own()
        await kit.record(lease, kit.step())
        kit.clock.advance(20_000)
        again = (
            kit.step("a#1"),
            kit.step(
                outcome="9" if conflict else '{"n":1}', started_at_ms=kit.now - 20_000, finished_at_ms=kit.now - 20_000
            ),
        )
        assert await kit.record(lease, *again) == (Conflict() if conflict else DONE)
        assert (await kit.run()).heartbeat_at_ms == kit.now
        kit.clock.advance(20_000)
        assert await kit.record(lease, again[1]) == (Conflict() if conflict else DONE)
        assert (await kit.run()).heartbeat_at_ms == kit.now

    async def test_parallel_records_of_one_run_all_succeed(self, kit: Kit) -> None:
        lease = await kit.own()
        answers = await asyncio.gather(
            *(kit.record(lease, kit.step(f"s#{n}", recorded=n)) for n in range(40)),
            *(kit.record(lease, kit.step(f"p#{n}"), kit.step(f"q#{n}")) for n in range(5)),
            kit.renew(lease),
        )
        assert {type(answer).__name__ for answer in answers} == {"Recorded", "Renewed"}
        assert len((await kit.history()).attempts) == 50

    async def test_only_the_exact_lease_may_write(self, kit: Kit) -> None:
        lease = await kit.own()
        owner = lease.owner
        others = (
            replace(lease, epoch=2),
            replace(lease, owner=OwnerId("host-b", owner.pid, owner.nonce)),
            replace(lease, owner=OwnerId(owner.host_id, owner.pid + 1, owner.nonce)),
            replace(lease, owner=OwnerId(owner.host_id, owner.pid, "zz")),
        )
        for other in others:
            assert await kit.record(other, kit.step()) == FenceLost()
            assert await kit.park(other) == FenceLost()
            assert await kit.settle(other, RunStatus.COMPLETED) == FenceLost()
            assert await kit.renew(other) == FenceLost()
            assert await kit.ask(other) == FenceLost()
            assert (
                await kit.stores.attempts.sleep(commands.Sleep(other, kit.step(state=StepState.WAITING))) == FenceLost()
            )
            assert (
                await kit.stores.approvals.withdraw(commands.Withdraw(other, kit.gate(state=StepState.CANCELLED)))
                == FenceLost()
            )
            assert await kit.stores.approvals.lapse(commands.Lapse(other, "ap-1", kit.gate())) == FenceLost()
        assert (await kit.history()).attempts == ()
        assert (await kit.run()).status is RunStatus.RUNNING

    async def test_a_missing_run_is_distinguished_from_a_lost_one(self, kit: Kit) -> None:
        nowhere = Lease(RunId("nowhere"), kit.owner(), 1)
        assert await kit.record(nowhere, kit.step()) == RunNotFound()
        assert await kit.park(nowhere) == RunNotFound()
        assert await kit.settle(nowhere, RunStatus.FAILED) == RunNotFound()
        assert await kit.ask(nowhere) == RunNotFound()
        assert await kit.renew(nowhere) == RunNotFound()
        assert (
            await kit.stores.attempts.sleep(commands.Sleep(nowhere, kit.step(state=StepState.WAITING))) == RunNotFound()
        )
        assert (
            await kit.stores.approvals.withdraw(commands.Withdraw(nowhere, kit.gate(state=StepState.CANCELLED)))
            == RunNotFound()
        )
        assert await kit.stores.approvals.lapse(commands.Lapse(nowhere, "ap-1", kit.gate())) == RunNotFound()

    async def test_nothing_can_be_recorded_once_the_run_was_let_go(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.park(lease, "timer", wake_at_ms=kit.now)
        assert await kit.record(lease, kit.step()) == FenceLost()
        await kit.stores.runs.wake(commands.Wake())
        [taken] = await kit.acquire()
        assert await kit.record(lease, kit.step()) == FenceLost()
        await kit.settle(taken.lease, RunStatus.COMPLETED)
        assert await kit.record(taken.lease, kit.step()) == FenceLost()
        assert (await kit.history()).attempts == ()

    async def test_the_first_sleep_under_a_key_is_kept(self, kit: Kit) -> None:
        lease = await kit.own()
        sleep = kit.step("sleep#1", StepState.WAITING, kind=StepKind.SLEEP, meta='{"until_ms":9}')
        assert await kit.stores.attempts.sleep(commands.Sleep(lease, sleep)) == Inserted()
        assert await kit.stores.attempts.sleep(commands.Sleep(lease, sleep)) == ExistingSame()
        later = replace(sleep, meta='{"until_ms":10}')
        assert await kit.stores.attempts.sleep(commands.Sleep(lease, later)) == Conflict()
        assert (await kit.attempts())["sleep#1"].meta == '{"until_ms":9}'

    async def test_attempts_are_ordered_by_step_key_then_by_number(self, kit: Kit) -> None:
        lease = await kit.own()
        for key, attempt in (("b#1", 2), ("a#1", 1), ("b#1", 1), ("Z#1", 1), ("a#1[10]", 1), ("a#1[2]", 1)):
            await kit.record(lease, kit.step(key, attempt=attempt))
        order = [(attempt.step_key, attempt.attempt) for attempt in (await kit.history()).attempts]
        assert order == sorted(order)
