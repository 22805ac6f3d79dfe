"""How runs stop."""

import asyncio
import json
from typing import Final

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import RunWait
from belay_core.stores.attempts import Recorded
from belay_core.stores.run_contract import AlreadyRequested, CancelRequested, FenceLost, NotFound, Terminal
from belay_core.stores.runs import PendingSignal, RunParked, Settled
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit

CANCEL: Final = commands.Cancel(RunId("run-1"), "ada")


class ReleaseChapter(Chapter):
    """``park``, ``settle`` and ``cancel``."""

    async def test_a_parked_run_shows_what_it_waits_for_and_has_no_owner(self, kit: Kit) -> None:
        lease = await kit.own()
        waiting = RunWait("timer", "sleep#1", kit.now + 500)
        assert await kit.stores.runs.park(commands.Park(lease, waiting, request='{"q":1}')) == RunParked()
        run = await kit.run()
        assert (run.status, run.waiting, run.waiting_request) == (RunStatus.SUSPENDED, waiting, '{"q":1}')
        assert (run.owner, run.heartbeat_at_ms, run.ready_at_ms) == (None, None, None)
        entry = (await kit.stores.journal.read(RunId("run-1")))[-1]
        facts = {"reason": "timer", "token": "sleep#1", "wake_at_ms": kit.now + 500}
        assert (entry.kind, json.loads(entry.facts)) == ("suspended", facts)

    async def test_an_event_of_the_owner_precedes_the_event_of_its_release(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.park(lease, "released", ready_at_ms=kit.now, notes=('{"n":1}', '{"n":2}'))
        [taken] = await kit.acquire()
        await kit.settle(taken.lease, RunStatus.COMPLETED, notes=('{"n":3}',))
        entries = await kit.stores.journal.read(RunId("run-1"))
        reported = [(entry.kind, json.loads(entry.facts).get("n")) for entry in entries[1:]]
        assert reported == [("noted", 1), ("noted", 2), ("suspended", None), ("noted", 3), ("settled", None)]
        assert [entry.entry for entry in entries] == sorted({entry.entry for entry in entries})

    async def test_a_run_parked_to_go_on_keeps_the_earlier_of_its_moments_and_needs_no_signal_read(
        self, kit: Kit
    ) -> None:
        lease = await kit.own()
        await kit.stores.runs.cancel(CANCEL)
        assert await kit.park(lease, "released", ready_at_ms=kit.now + 50) == RunParked()
        assert (await kit.run()).ready_at_ms == kit.now
        [taken] = await kit.acquire()
        assert await kit.park(taken.lease, "released", ready_at_ms=kit.now + 50) == RunParked()
        assert (await kit.run()).ready_at_ms == kit.now + 50

    async def test_a_settled_run_shows_its_end_and_never_changes(self, kit: Kit) -> None:
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
        assert await kit.stores.runs.cancel(CANCEL) == Terminal(RunStatus.FAILED)
        assert await kit.run() == run

    async def test_a_run_with_a_pending_signal_is_not_settled_before_it_is_seen(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        await kit.decide()
        assert await kit.settle(lease, RunStatus.COMPLETED) == PendingSignal()
        seen = (await kit.renew(lease)).pending_signal_ms
        assert isinstance(await kit.settle(lease, RunStatus.COMPLETED, seen_ms=seen), Settled)

    async def test_a_run_asked_to_stop_can_only_be_settled_as_cancelled(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.stores.runs.cancel(CANCEL)
        seen = (await kit.renew(lease)).pending_signal_ms
        for status in (RunStatus.COMPLETED, RunStatus.FAILED):
            assert await kit.settle(lease, status, seen_ms=seen) == PendingSignal()
        assert isinstance(await kit.settle(lease, RunStatus.CANCELLED, seen_ms=seen), Settled)
        assert (await kit.run()).cancel_requested_at_ms == kit.now

    async def test_after_a_pending_signal_the_lease_still_writes(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.stores.runs.cancel(CANCEL)
        assert await kit.park(lease) == PendingSignal()
        assert isinstance(await kit.record(lease, kit.step()), Recorded)
        assert await kit.settle(lease, RunStatus.COMPLETED) == PendingSignal()
        assert isinstance(await kit.record(lease, kit.step("b#1")), Recorded)

    async def test_the_first_cancel_request_is_kept_and_survives_a_takeover(self, kit: Kit) -> None:
        first = await kit.own()
        at = kit.now
        assert await kit.stores.runs.cancel(CANCEL) == CancelRequested(at)
        kit.clock.advance(30_001)
        assert await kit.stores.runs.cancel(CANCEL) == AlreadyRequested(at)
        [taken] = await kit.acquire()
        assert taken.run.cancel_requested_at_ms == at
        assert await kit.renew(first) == FenceLost()
        assert await kit.stores.runs.cancel(commands.Cancel(RunId("nowhere"))) == NotFound()
        entries = [entry for entry in await kit.stores.journal.read(RunId("run-1")) if entry.kind == "cancel_requested"]
        assert [json.loads(entry.facts) for entry in entries] == [{"by": "ada"}]

    async def test_a_cancel_request_makes_a_waiting_run_ready(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.park(lease, "timer", wake_at_ms=kit.now + 10**9)
        await kit.stores.runs.cancel(CANCEL)
        [taken] = await kit.acquire()
        assert taken.run.cancel_requested_at_ms == kit.now

    async def test_of_many_cancel_requests_one_counts(self, kit: Kit) -> None:
        await kit.start()
        answers = await asyncio.gather(*(kit.stores.runs.cancel(CANCEL) for _ in range(20)))
        assert sum(isinstance(answer, CancelRequested) for answer in answers) == 1
        assert set(answers) == {CancelRequested(kit.now), AlreadyRequested(kit.now)}
