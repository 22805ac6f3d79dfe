"""A run is started once, however many callers ask."""

import asyncio
from typing import Any

import pytest

from belay_core.errors import InvalidInput
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.stores.runs import Found, KeyTaken, RunIdTaken, Started
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit


class StartChapter(Chapter):
    """``start``."""

    async def test_a_new_run_is_pending_and_may_be_taken_at_once(self, kit: Kit) -> None:
        assert await kit.start(priority=3, trace="00-ab-cd-01") == Started(RunId("run-1"))
        run = await kit.run()
        assert (run.status, run.ready_at_ms, run.created_at_ms) == (RunStatus.PENDING, kit.now, kit.now)
        assert (run.workflow, run.version, run.input, run.priority) == ("refund", "1", '{"order":1}', 3)
        assert (run.trace, run.result, run.error, run.owner, run.epoch) == ("00-ab-cd-01", None, None, None, 0)
        assert await kit.kinds() == ["created"]

    async def test_the_same_key_finds_the_run_whatever_the_input(self, kit: Kit) -> None:
        await kit.start(idempotency_key="k")
        again = await kit.start("run-2", idempotency_key="k", input='{"order":2}')
        assert again == Found(RunId("run-1"), RunStatus.PENDING)
        assert await kit.stores.runs.find(RunId("run-2")) is None
        assert await kit.kinds() == ["created"]

    async def test_a_key_of_another_workflow_is_taken(self, kit: Kit) -> None:
        await kit.start(idempotency_key="k")
        assert await kit.start("run-2", workflow="order", idempotency_key="k") == KeyTaken(RunId("run-1"), "refund")

    async def test_the_same_id_finds_the_run_only_with_the_same_workflow_key_and_input(self, kit: Kit) -> None:
        await kit.start(idempotency_key="k")
        assert await kit.start(idempotency_key="k") == Found(RunId("run-1"), RunStatus.PENDING)
        for other in ({"idempotency_key": "other"}, {}, {"workflow": "order"}, {"input": "{}"}):
            assert await kit.start(**other) == RunIdTaken()

    async def test_the_key_counts_before_the_id(self, kit: Kit) -> None:
        await kit.start(idempotency_key="k")
        await kit.start("run-2", idempotency_key="l")
        assert await kit.start("run-2", idempotency_key="k") == Found(RunId("run-1"), RunStatus.PENDING)

    async def test_a_run_that_is_over_is_found_with_its_end(self, kit: Kit) -> None:
        lease = await kit.own(idempotency_key="k")
        await kit.settle(lease, RunStatus.COMPLETED, result="1")
        assert await kit.start("run-2", idempotency_key="k") == Found(RunId("run-1"), RunStatus.COMPLETED)

    async def test_of_many_starts_with_one_key_exactly_one_starts(self, kit: Kit) -> None:
        answers: list[Any] = await asyncio.gather(*(kit.start(f"run-{n}", idempotency_key="k") for n in range(20)))
        started = [answer for answer in answers if isinstance(answer, Started)]
        assert len(started) == 1
        assert {answer.run_id for answer in answers} == {started[0].run_id}
        assert len(await kit.stores.runs.list(commands.ListRuns())) == 1

    async def test_a_run_for_later_is_not_taken_before_its_moment(self, kit: Kit) -> None:
        await kit.start(run_at_ms=kit.now + 5_000)
        kit.clock.advance(4_999)
        assert await kit.acquire() == []
        kit.clock.advance(1)
        assert [acquired.run.run_id for acquired in await kit.acquire()] == ["run-1"]

    @pytest.mark.parametrize("run_id", ["漢" * 1_024, "sha256:" + "0" * 64, "\U0001f9d7" * 512, "x" * 1_000])
    async def test_ids_too_long_for_an_index_or_looking_like_a_hash_come_back_whole(
        self, kit: Kit, run_id: Any
    ) -> None:
        assert await kit.start(run_id) == Started(RunId(run_id))
        assert await kit.start(run_id) == Found(RunId(run_id), RunStatus.PENDING)
        [acquired] = await kit.acquire()
        assert acquired.run.run_id == acquired.lease.run_id == run_id
        await kit.ask(acquired.lease)
        history = await kit.history(run_id)
        assert history.run.run_id == history.approvals[0].run_id == run_id
        assert [run.run_id for run in await kit.stores.runs.list(commands.ListRuns())] == [run_id]
        assert [entry.run_id for entry in await kit.stores.journal.read(RunId(run_id))] == [run_id, run_id]

    async def test_texts_come_back_as_they_were_given(self, kit: Kit) -> None:
        text = '{"a" : "Zoë \\u0000 \\\\ \U0001f9d7 \' % :b_run"}'
        await kit.start(input=text, workflow="naïve", trace="t'race")
        run = await kit.run()
        assert (run.input, run.workflow, run.trace) == (text, "naïve", "t'race")

    @pytest.mark.parametrize(
        ("change", "parameter"),
        [
            ({"input": '"\ud800 secret"'}, "input"),
            ({"input": "secret\0"}, "input"),
            ({"workflow": "x" * 513}, "workflow"),
            ({"workflow": ""}, "workflow"),
            ({"version": "\0"}, "version"),
            ({"idempotency_key": "漢" * 171}, "idempotency_key"),
            ({"idempotency_key": ""}, "idempotency_key"),
            ({"priority": 2**31}, "priority"),
            ({"priority": True}, "priority"),
            ({"run_at_ms": -1}, "run_at_ms"),
            ({"run_at_ms": 2**53}, "run_at_ms"),
            ({"trace": "\udfff"}, "trace"),
            ({"run_id": "x" * 1_025}, "run_id"),
            ({"run_id": ""}, "run_id"),
        ],
    )
    async def test_what_no_database_can_hold_is_refused_by_name_without_the_value(
        self, kit: Kit, change: Any, parameter: Any
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await kit.start(**change)
        assert refused.value.parameter == parameter
        assert "secret" not in str(refused.value)
        assert await kit.stores.runs.list(commands.ListRuns()) == ()

    async def test_names_as_long_as_allowed_are_kept(self, kit: Kit) -> None:
        await kit.start(workflow="漢" * 170, idempotency_key="\U0001f9d7" * 128, priority=-(2**31) + 1)
        run = await kit.run()
        assert (run.workflow, run.idempotency_key) == ("漢" * 170, "\U0001f9d7" * 128)
