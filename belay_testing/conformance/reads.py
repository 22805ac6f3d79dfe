"""Reads are complete, ordered, and change nothing."""

from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit


class ReadsChapter(Chapter):
    """Reads of runs, histories and approvals."""

    async def test_histories_come_in_the_order_asked_for_and_unknown_runs_are_left_out(self, kit: Kit) -> None:
        for number in range(5):
            lease = await kit.own(f"run-{number}")
            for step in range(number):
                await kit.record(lease, kit.step(f"s#{step}"))
            await kit.ask(lease, approval=f"ap-{number}")
        wanted = ("run-3", "nowhere", "run-0", "run-4", "run-3")
        histories = await kit.stores.attempts.history(commands.History(tuple(map(RunId, wanted))))
        assert [history.run.run_id for history in histories] == ["run-3", "run-0", "run-4", "run-3"]
        assert [len(history.attempts) for history in histories] == [4, 1, 5, 4]
        assert [history.approvals[0].approval_id for history in histories] == ["ap-3", "ap-0", "ap-4", "ap-3"]
        assert await kit.stores.attempts.history(commands.History(())) == ()

    async def test_hundreds_of_histories_are_read_in_one_go(self, kit: Kit) -> None:
        ids = [RunId(f"run-{number:03}") for number in range(300)]
        for run_id in ids[::3]:
            await kit.start(run_id)
        histories = await kit.stores.attempts.history(commands.History(tuple(ids)))
        assert [history.run.run_id for history in histories] == ids[::3]

    async def test_a_run_that_is_handed_in_is_given_back_and_what_is_recorded_of_it_is_read(self, kit: Kit) -> None:
        lease = await kit.own("run-1")
        earlier = await kit.run("run-1")
        await kit.record(lease, kit.step("s#1"))
        await kit.ask(lease)
        await kit.own("run-2")
        asked = commands.History((RunId("run-2"), RunId("run-1"), RunId("nowhere")), (earlier,))
        other, history = await kit.stores.attempts.history(asked)
        assert other.run == await kit.run("run-2")
        assert history.run is earlier
        assert [len(history.attempts), len(history.approvals)] == [2, 1]
        assert await kit.stores.attempts.history(commands.History((RunId("run-2"),), (earlier,))) == (other,)

    async def test_pages_of_runs_go_from_the_newest_to_the_oldest(self, kit: Kit) -> None:
        for number in (3, 1, 2, 5, 4):
            await kit.start(f"run-{number}")
            kit.clock.advance(number % 2)
        listed: list[str] = []
        before = None
        while page := await kit.stores.runs.list(commands.ListRuns(limit=2, before=before)):
            listed += [run.run_id for run in page]
            before = page[-1].run_id
        assert listed == ["run-4", "run-5", "run-2", "run-1", "run-3"]
        assert await kit.stores.runs.list(commands.ListRuns(before=RunId("nowhere"))) == ()
        assert await kit.stores.runs.list(commands.ListRuns(limit=0)) == ()

    async def test_runs_are_listed_by_workflow_status_and_what_they_wait_for(self, kit: Kit) -> None:
        await kit.start("a", workflow="order")
        lease = await kit.own("b")
        await kit.park(lease, "approval")
        lease = await kit.own("c")
        await kit.park(lease, "timer", wake_at_ms=kit.now + 9)

        async def listed(**conditions: Any) -> list[str]:
            return [run.run_id for run in await kit.stores.runs.list(commands.ListRuns(**conditions))]

        assert await listed(workflow="order") == ["a"]
        assert await listed(status=RunStatus.SUSPENDED) == ["c", "b"]
        assert await listed(status=RunStatus.SUSPENDED, waiting_reason="approval", workflow="refund") == ["b"]
        assert await listed(status=RunStatus.COMPLETED) == []

    async def test_a_run_is_listed_by_its_key(self, kit: Kit) -> None:
        await kit.start("a", idempotency_key="k")
        await kit.start("b", idempotency_key="K")
        await kit.start("c")
        for key, found in (("k", ["a"]), ("K", ["b"]), ("c", [])):
            page = await kit.stores.runs.list(commands.ListRuns(idempotency_key=key))
            assert [run.run_id for run in page] == found

    async def test_a_summary_says_what_the_record_says_but_for_the_payloads(self, kit: Kit) -> None:
        await kit.own(idempotency_key="k", priority=4)
        [summary] = await kit.stores.runs.list(commands.ListRuns())
        run = await kit.run()
        for name in ("run_id", "status", "owner", "epoch", "idempotency_key", "priority", "heartbeat_at_ms"):
            assert getattr(summary, name) == getattr(run, name)

    async def test_what_is_not_there_is_none(self, kit: Kit) -> None:
        assert await kit.stores.runs.find(RunId("nowhere")) is None
        assert await kit.stores.approvals.find("nowhere") is None
        assert await kit.stores.journal.read(RunId("nowhere")) == ()

    async def test_ownership_facts_are_no_events_of_the_run(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.settle(lease, RunStatus.COMPLETED)
        entries = await kit.stores.journal.read(RunId("run-1"))
        assert [entry.kind for entry in entries] == ["created", "settled"]
        assert [entry.entry for entry in entries] == [1, 3]

    @pytest.mark.parametrize("count", [1, 2, 127, 128, 129])
    async def test_any_number_of_histories_can_be_asked_for(self, kit: Kit, count: Any) -> None:
        await kit.start("run-0")
        ids = tuple(RunId(f"run-{number}") for number in range(count))
        assert [history.run.run_id for history in await kit.stores.attempts.history(commands.History(ids))] == ["run-0"]
