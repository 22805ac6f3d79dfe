"""How an operator lets failed and cancelled runs go on."""

import json
from typing import Any

import pytest

from belay_core.errors import InvalidInput
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import Lease
from belay_core.records.run import RunStatus
from belay_core.records.step_record import RETRIED, RETRY_AT, StepState
from belay_core.stores.run_contract import NotFound
from belay_core.stores.runs import NotRetryable, Retried
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit

FAILURE = '{"type":"StepFailed","message":"m","steps":["pay#1"]}'


async def failed(kit: Kit, status: RunStatus = RunStatus.FAILED) -> Lease:
    """A run that has ended, with a failed step and an open gate."""
    lease = await kit.own()
    error = '{"type":"E","message":"m"}'
    await kit.record(lease, kit.step("fetch#1"))
    await kit.record(lease, kit.step("pay#1", StepState.FAILED, recorded=2, error=error, meta='{"a":1}'))
    await kit.ask(lease)
    await kit.settle(lease, status, error=FAILURE if status is RunStatus.FAILED else None)
    return lease


def retry_command(by: str = "ada", reason: str | None = "mended", run_id: str = "run-1") -> commands.RetryRun:
    """An operator's retry of the run."""
    return commands.RetryRun(RunId(run_id), by, reason)


class RetryChapter(Chapter):
    """``retry``."""

    async def test_a_failed_run_may_be_acquired_again_and_its_failed_step_is_due(self, kit: Kit) -> None:
        await failed(kit)
        kit.clock.advance(5)
        assert await kit.stores.runs.retry(retry_command()) == Retried(kit.now, ("pay#1",))
        run = await kit.run()
        assert (run.status, run.finished_at_ms, run.error, run.ready_at_ms) == ("suspended", None, None, kit.now)
        attempts = await kit.attempts()
        assert attempts["fetch#1"].outcome == '{"n":1}'
        meta = json.loads(attempts["pay#1"].meta)
        assert (meta["a"], meta[RETRY_AT], meta[RETRIED]) == (1, kit.now, 3)
        assert attempts["pay#1"].state is StepState.FAILED
        assert len(await kit.acquire()) == 1

    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELLED])
    async def test_what_its_end_withdrew_is_asked_again(self, kit: Kit, status: Any) -> None:
        await failed(kit, status)
        assert (await kit.approval("ap-1")).decision == "withdrawn"
        await kit.stores.runs.retry(retry_command())
        approval = await kit.approval("ap-1")
        assert (approval.decision, approval.decided_at_ms) == (None, None)
        gate = (await kit.attempts())["editor#1"]
        assert (gate.state, gate.recorded, gate.finished_at_ms) == (StepState.WAITING, None, None)
        assert type(await kit.decide()).__name__ == "Decided"

    async def test_the_journal_says_who_retried_it_why_and_what_it_had_failed_of(self, kit: Kit) -> None:
        await failed(kit)
        await kit.stores.runs.retry(retry_command())
        entry = (await kit.stores.journal.read(RunId("run-1")))[-1]
        error = {"type": "StepFailed", "message": "m"}
        facts = {"by": "ada", "reason": "mended", "status": "failed", "error": error, "steps": ["pay#1"]}
        assert (entry.kind, json.loads(entry.facts)) == ("belay.retried", facts)

    async def test_a_cancel_request_is_over_with_the_run_it_ended(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.stores.runs.cancel(commands.Cancel(RunId("run-1"), "ada"))
        renewed = await kit.renew(lease)
        await kit.settle(lease, RunStatus.CANCELLED, seen_ms=renewed.pending_signal_ms)
        assert isinstance(await kit.stores.runs.retry(retry_command()), Retried)
        assert (await kit.run()).cancel_requested_at_ms is None

    async def test_no_other_run_is_retried(self, kit: Kit) -> None:
        assert await kit.stores.runs.retry(retry_command()) == NotFound()
        lease = await kit.own()
        assert await kit.stores.runs.retry(retry_command()) == NotRetryable(RunStatus.RUNNING)
        await kit.settle(lease, RunStatus.COMPLETED, result="1")
        assert await kit.stores.runs.retry(retry_command()) == NotRetryable(RunStatus.COMPLETED)
        assert await kit.kinds() == ["created", "settled"]

    @pytest.mark.parametrize("given", [{"by": ""}, {"reason": "\0"}, {"run_id": ""}])
    async def test_a_broken_command_is_refused(self, kit: Kit, given: Any) -> None:
        with pytest.raises(InvalidInput):
            await kit.stores.runs.retry(retry_command(**given))
