"""The auxiliary stores, over runs of workflows."""

from typing import Any

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.changes import RunFilters
from belay_core.records.run import RunStatus
from belay_core.records.waiting import Wait
from belay_core.stores.retention import Deleted
from belay_core.stores.runs import Started
from belay_core.stores.waiting import Parked, Woken
from belay_testing.conformance.auxiliary import kinds, parked
from belay_testing.conformance.change_feed import follow
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import R
from belay_testing.conformance.run_pages import listed


class EngineAuxiliaryChapter(Chapter):
    """Runs that the engine parks are listed and woken through the waiting store; its changes reach the feed."""

    async def test_runs_parked_by_the_engine_are_seen_and_woken_for_the_next_worker(
        self, kit: Kit, stores: Any
    ) -> None:
        lease = await kit.own()
        await kit.park(lease, "timer", token="nap#1", wake_at_ms=kit.now + 60_000, request='{"q":1}')
        row = await stores.waiting.waiting(R)
        expected = (RunStatus.SUSPENDED, "timer", kit.now + 60_000, "nap#1", {"q": 1})
        assert (row.status, row.reason, row.wake_at_ms, row.token, row.request) == expected
        assert await stores.waiting.waiting_runs() == (row,)
        assert await kit.acquire() == []
        with stores.notifier.listening() as heard:
            assert await stores.waiting.wake(R) == Woken(row)
            assert heard.is_set()
        [taken] = await kit.acquire()
        assert taken.run.waiting is None
        assert (await kit.kinds())[-1] == "woken"

    async def test_waking_a_running_run_is_a_pending_signal_of_its_owner(self, kit: Kit, stores: Any) -> None:
        lease = await kit.own()
        assert isinstance(await stores.waiting.park(R, Wait("event"), lease.owner), Parked)
        assert (await kit.renew(lease)).pending_signal_ms is None
        await stores.waiting.wake(R)
        assert (await kit.renew(lease)).pending_signal_ms is not None

    async def test_the_engine_leaves_waits_of_the_contract_alone(self, kit: Kit, stores: Any) -> None:
        await parked(stores, RunId("bare"), "timer", 1)
        kit.clock.advance(5)
        assert (await kit.stores.runs.wake(commands.Wake())).count == 0
        assert await kinds(stores, RunId("bare")) == ["created", "parked"]

    async def test_a_workflows_run_goes_with_its_approvals_and_frees_its_key(self, kit: Kit, stores: Any) -> None:
        lease = await kit.own(idempotency_key="k")
        await kit.ask(lease)
        await kit.settle(lease, RunStatus.FAILED)
        assert await stores.retention.delete(R) == Deleted(kit.now)
        assert await kit.stores.approvals.find("ap-1") is None
        assert await kit.stores.runs.find(R) is None
        assert await kit.start("run-2", idempotency_key="k") == Started(RunId("run-2"))
        assert await kit.start() == Started(R)
        assert (await kit.kinds())[-2:] == ["deleted", "created"]
        again = (await kit.acquire(limit=2))[0].lease
        await kit.stores.runs.cancel(commands.Cancel(again.run_id))
        numbers = [entry.entry for entry in await kit.stores.journal.read(R)]
        assert numbers == sorted(set(numbers))

    async def test_all_changes_of_the_engine_are_followed_but_renewals_and_steps(self, kit: Kit, stores: Any) -> None:
        follower = await follow(stores)
        lease = await kit.own()
        assert await follower.ids() == [R]
        await kit.renew(lease)
        await kit.record(lease, kit.step())
        assert await follower.read() == []
        for change in (
            lambda: kit.ask(lease),
            kit.decide,
            lambda: kit.stores.runs.cancel(commands.Cancel(R)),
        ):
            await change()
            assert await follower.ids() == [R]
        await kit.settle(lease, RunStatus.CANCELLED, seen_ms=(await kit.renew(lease)).pending_signal_ms)
        assert await follower.ids() == [R]

    async def test_runs_are_listed_by_workflow(self, kit: Kit, stores: Any) -> None:
        await stores.runs.create(RunId("bare"), "{}")
        await kit.start("run-2")
        await kit.start("run-1")
        await kit.start("run-3", workflow="other")
        assert await listed(stores, RunFilters(workflow="refund"), limit=1) == ["run-1", "run-2"]
