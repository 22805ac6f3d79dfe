"""Waking: how a parked run becomes ready, and how a running one gets a pending signal."""

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState
from belay_core.stores.attempts import Recorded
from belay_core.stores.runs import PendingSignal, Renewed, RunParked
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import STALE


class WakeChapter(Chapter):
    """``wake``, ``renew`` and pending signals."""

    async def test_a_timer_wakes_its_run_when_due_and_only_once(self, kit: Kit) -> None:
        lease = await kit.own()
        assert await kit.park(lease, "timer", token="sleep#1", wake_at_ms=kit.now + 100) == RunParked()
        kit.clock.advance(99)
        assert (await kit.stores.runs.wake(commands.Wake())).count == 0
        assert await kit.acquire() == []
        kit.clock.advance(1)
        assert (await kit.stores.runs.wake(commands.Wake())).count == 1
        assert (await kit.stores.runs.wake(commands.Wake())).count == 0
        [taken] = await kit.acquire()
        assert taken.run.run_id == "run-1"
        assert await kit.kinds() == ["created", "suspended", "woken"]

    async def test_waking_is_bounded_and_begins_with_what_is_due_longest(self, kit: Kit) -> None:
        for number, wake in enumerate((30, 10, 20)):
            lease = await kit.own(f"run-{number}")
            await kit.park(lease, "timer", wake_at_ms=kit.now + wake)
        kit.clock.advance(50)
        assert (await kit.stores.runs.wake(commands.Wake(limit=2))).count == 2
        assert sorted(acquired.run.run_id for acquired in await kit.acquire()) == ["run-1", "run-2"]
        assert (await kit.stores.runs.wake(commands.Wake(limit=0))).count == 0

    async def test_a_run_parked_for_a_later_retry_still_wakes_by_its_earlier_timer(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.park(lease, "backoff", wake_at_ms=kit.now + 10, ready_at_ms=kit.now + 9_000)
        kit.clock.advance(10)
        assert (await kit.stores.runs.wake(commands.Wake())).count == 1
        assert (await kit.run()).ready_at_ms == kit.now

    async def test_a_run_that_was_let_go_is_not_taken_until_something_happens(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        assert await kit.park(lease) == RunParked()
        kit.clock.advance(STALE * 100)
        assert await kit.acquire() == []
        await kit.decide()
        [taken] = await kit.acquire()
        assert taken.run.run_id == "run-1"

    async def test_renewing_keeps_a_lease_and_never_moves_its_stamp_back(self, kit: Kit) -> None:
        lease = await kit.own()
        began = kit.now
        kit.clock.advance(STALE)
        assert await kit.renew(lease) == Renewed(None, None)
        kit.clock.advance(STALE)
        assert await kit.acquire() == []
        kit.clock.set(began)
        assert await kit.renew(lease) == Renewed(None, None)
        assert (await kit.run()).heartbeat_at_ms == began + STALE

    async def test_renewal_answers_each_lease_in_the_order_given(self, kit: Kit) -> None:
        leases = [await kit.own(f"run-{number}") for number in range(3)]
        kit.clock.advance(STALE + 1)
        [second] = [a.lease for a in await kit.acquire(limit=1, dead=(leases[1].owner,))]
        await kit.stores.runs.cancel(commands.Cancel(RunId("run-2")))
        gone = type(second)(RunId("nowhere"), second.owner, 1)
        answers = await kit.stores.runs.renew(commands.Renew((leases[2], gone, leases[1], second, leases[0])))
        assert [type(answer).__name__ for answer in answers] == [
            "Renewed",
            "RunNotFound",
            "FenceLost",
            "Renewed",
            "Renewed",
        ]
        assert answers[0] == Renewed(kit.now, kit.now)
        assert await kit.stores.runs.renew(commands.Renew(())) == ()

    async def test_a_signal_to_a_running_run_keeps_its_owner_from_parking_until_seen(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        await kit.decide()
        assert await kit.park(lease) == PendingSignal()
        first = await kit.renew(lease)
        assert isinstance(first, Renewed)
        assert first.pending_signal_ms is not None
        await kit.stores.runs.cancel(commands.Cancel(RunId("run-1")))
        second = await kit.renew(lease)
        assert second.pending_signal_ms == first.pending_signal_ms + 1
        assert await kit.park(lease, seen_ms=first.pending_signal_ms) == PendingSignal()
        assert (await kit.run()).status is RunStatus.RUNNING
        assert await kit.park(lease, seen_ms=second.pending_signal_ms) == RunParked()
        assert (await kit.run()).ready_at_ms is None

    async def test_a_decision_makes_a_run_parked_for_later_ready_at_once(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        await kit.park(lease, ready_at_ms=kit.now + 60_000)
        kit.clock.advance(5)
        await kit.decide()
        assert (await kit.run()).ready_at_ms == kit.now
        assert len(await kit.acquire()) == 1

    async def test_a_mark_that_was_due_earlier_is_not_put_off(self, kit: Kit) -> None:
        await kit.start()
        due = kit.now
        kit.clock.advance(50)
        await kit.stores.runs.cancel(commands.Cancel(RunId("run-1")))
        assert (await kit.run()).ready_at_ms == due

    async def test_an_owner_may_work_on_while_its_run_has_a_pending_signal(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.stores.runs.cancel(commands.Cancel(RunId("run-1")))
        assert await kit.record(lease, kit.step()) == Recorded(kit.now, kit.now)
        assert await kit.record(lease, kit.step("b#1", StepState.RUNNING)) == Recorded(kit.now, kit.now)
