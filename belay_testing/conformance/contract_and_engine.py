"""The contract and the engine over the same runs."""

from typing import Any

from belay_core.ids import RunId
from belay_core.records.owner import LivenessEvidence
from belay_core.records.run import CreateOptions, RunStatus
from belay_core.stores.run_contract import Activated, CancelRequested, FenceLost, Transitioned, Updated
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import RUNNING, A, B, C, R


class ContractAndEngineChapter(Chapter):
    """The contract's operations and the engine's on one database."""

    async def test_a_lease_of_the_engine_is_fenced_by_the_contract_too(self, kit: Kit, runs: Any) -> None:
        lease = await kit.own()
        assert await runs.heartbeat(R, lease.owner, 0) == Updated()
        assert await runs.transition_owned(R, lease.owner, RunStatus.RUNNING, "1") == Transitioned()
        assert type(await kit.record(lease, kit.step())).__name__ == "Recorded"
        kit.clock.set(30_001)
        taken = await runs.claim_and_own(
            R, await runs.get(R), B, 30_001, LivenessEvidence(lease.owner, 30_001, "lease-expired")
        )
        assert taken == Activated()
        assert await kit.record(lease, kit.step("b#1")) == FenceLost()
        assert (await kit.run()).epoch == 2

    async def test_an_activated_run_is_fenced_from_the_engine_that_had_it(self, kit: Kit, runs: Any) -> None:
        lease = await kit.own()
        kit.clock.set(40_000)
        read = await runs.get(R)
        await runs.steal(R, read, C, 40_000, LivenessEvidence(lease.owner, 40_000, "lease-expired"))
        assert type(await kit.record(lease, kit.step())).__name__ == "Recorded"
        kit.clock.set(80_000)
        read = await runs.get(R)
        await runs.abandon_claim(R, C, 40_000)
        await runs.steal(R, read, C, 80_000, LivenessEvidence(lease.owner, 80_000, "lease-expired"))
        assert await runs.activate(R, C, 80_000, read) == Activated()
        assert await kit.record(lease, kit.step("b#1")) == FenceLost()

    async def test_an_attempt_of_the_contract_is_not_shown_to_an_engine(self, kit: Kit, attempts: Any) -> None:
        await attempts.put(RUNNING, A)
        assert (await kit.history()).attempts == ()

    async def test_a_request_wakes_the_worker_of_a_workflows_run(self, kit: Kit, runs: Any) -> None:
        await kit.own()
        assert await runs.request_cancel(R, 5) == CancelRequested(5)
        assert (await kit.run()).ready_at_ms == kit.now

    async def test_a_run_made_by_the_contract_has_no_workflow_and_is_never_taken(self, kit: Kit) -> None:
        await kit.stores.runs.create(RunId("bare"), "{}", CreateOptions())
        assert await kit.acquire() == []
