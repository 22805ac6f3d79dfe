"""Several processes over one database."""

import asyncio
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import Lease
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState
from belay_core.stores.approvals import Decided
from belay_core.stores.attempts import Recorded
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.harness import Harness


class ProcessesChapter(Chapter):
    """Two openings, as two processes have them."""

    async def test_a_lease_this_process_did_not_acquire_can_be_used_by_it(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            lease = await Kit(one, harness.clock).own()
            for number in range(3):
                assert await Kit(other, harness.clock).record(
                    lease, Kit(other, harness.clock).step(f"a#{number}")
                ) == Recorded(None, None)
                assert await Kit(one, harness.clock).record(
                    lease, Kit(one, harness.clock).step(f"b#{number}")
                ) == Recorded(None, None)

    async def test_fifty_approvers_in_two_processes_agree_on_one_decision(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            kits = [Kit(one, harness.clock), Kit(other, harness.clock)]
            lease = await kits[0].own()
            await kits[0].ask(lease)
            answers = await asyncio.gather(
                *(kits[n % 2].decide(decision=("approved", "rejected")[n % 3 % 2], by=f"p{n}") for n in range(50))
            )
            [won] = [n for n, answer in enumerate(answers) if isinstance(answer, Decided)]
            approval = await kits[1].approval("ap-1")
            assert approval.decided_by == f"p{won}"

    @pytest.mark.parametrize("order", [0, 1])
    async def test_a_decision_from_another_process_is_seen_before_the_run_is_let_go(
        self, harness: Harness, order: Any
    ) -> None:
        async with harness.open() as one, harness.open() as other:
            owner, approver = Kit(one, harness.clock), Kit(other, harness.clock)
            for number in range(20):
                lease = await owner.own(f"run-{number}")
                await owner.ask(lease, approval=f"ap-{number}")
                calls = [owner.park(lease), approver.decide(f"ap-{number}")]
                answers = await asyncio.gather(*(calls[::-1] if order else calls))
                parked = answers[1] if order else answers[0]
                run = await owner.run(f"run-{number}")
                if run.status is RunStatus.SUSPENDED:
                    assert type(parked).__name__ == "RunParked"
                    assert run.ready_at_ms is not None
                    [taken] = await owner.acquire()
                    lease = taken.lease
                else:
                    assert (await owner.renew(lease)).pending_signal_ms is not None
                await owner.settle(lease, RunStatus.COMPLETED, seen_ms=(await owner.renew(lease)).pending_signal_ms)

    async def test_starts_with_one_key_from_two_processes_start_once(self, harness: Harness) -> None:
        async with harness.open() as one, harness.open() as other:
            kits = [Kit(one, harness.clock), Kit(other, harness.clock)]
            answers: list[Any] = await asyncio.gather(
                *(kits[n % 2].start(f"run-{n}", idempotency_key="k") for n in range(30))
            )
            assert len({answer.run_id for answer in answers}) == 1
            assert sum(type(answer).__name__ == "Started" for answer in answers) == 1

    async def test_owners_cancel_requests_operators_and_renewals_do_not_block_each_other(
        self, harness: Harness
    ) -> None:
        async with harness.open() as one, harness.open() as other:
            kits = [Kit(one, harness.clock), Kit(other, harness.clock)]
            leases: list[Lease] = []
            for number in range(12):
                leases.append(await kits[0].own(f"run-{number}"))
                await kits[0].record(leases[-1], kits[0].step("pay#1", StepState.ORPHANED, recorded=None))
            work: list[Any] = []
            for number, lease in enumerate(leases):
                run_id = RunId(f"run-{number}")
                work += [
                    kits[0].record(lease, kits[0].step()),
                    kits[1].stores.runs.cancel(commands.Cancel(run_id)),
                    kits[1].stores.runs.resolve(commands.Resolve(run_id, commands.Retry(), "ada", "pay#1")),
                    kits[0].stores.runs.renew(commands.Renew(tuple(leases))),
                    kits[1].stores.runs.renew(commands.Renew(tuple(reversed(leases)))),
                ]
            answers = await asyncio.gather(*work)
            assert sum(isinstance(answer, Recorded) for answer in answers) == 12
