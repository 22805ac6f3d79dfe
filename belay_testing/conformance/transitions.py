"""Only its owner changes the status of a run."""

from dataclasses import replace
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus, TransitionGuard
from belay_core.stores.run_contract import (
    Activated,
    CancelRequested,
    Claimed,
    FenceLost,
    GuardFailed,
    NotFound,
    Transitioned,
)
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import PENDING, A, B, C, R, evidence, own


class TransitionsChapter(Chapter):
    """``transition_owned``."""

    @case(34)
    async def test_only_the_owner_moves_a_run_on(self, runs: Any) -> None:
        assert await runs.transition_owned(RunId("nowhere"), A, RunStatus.FAILED) == NotFound()
        await own(runs)
        assert await runs.transition_owned(R, A, RunStatus.RUNNING, '{"cursor":1}') == Transitioned()
        assert await runs.transition_owned(R, A, "running") == Transitioned()
        row = await runs.get(R)
        assert (row.state_json, row.owner, row.status) == ('{"cursor":1}', A, RunStatus.RUNNING)
        for other in (B, replace(A, host_id="host-b"), replace(A, nonce="x"), replace(A, pid=1)):
            assert await runs.transition_owned(R, other, RunStatus.FAILED) == FenceLost()
        assert await runs.get(R) == row

    @case(38)
    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "suspended"])
    async def test_letting_go_clears_owner_and_claim_and_stamps_an_end(self, kit: Kit, runs: Any, status: Any) -> None:
        await own(runs)
        kit.clock.set(40_000)
        assert await runs.steal(R, await runs.get(R), C, 40_000, evidence(A, C, 40_000)) == Claimed(40_000)
        kit.clock.set(40_005)
        assert await runs.transition_owned(R, A, status, '{"reason":"opaque"}') == Transitioned()
        row = await runs.get(R)
        assert (row.owner, row.heartbeat_at_ms, row.claim, row.claimed_at_ms) == (None, None, None, None)
        assert (row.status, row.state_json) == (status, '{"reason":"opaque"}')
        assert row.finished_at_ms == (None if status == "suspended" else 40_005)
        assert await runs.transition_owned(R, A, status) == FenceLost()
        if status == "suspended":
            assert await runs.claim_and_own(R, row, C, 40_005) == Activated()

    async def test_a_guard_is_judged_with_the_fence(self, runs: Any) -> None:
        await own(runs)
        absent, present = TransitionGuard("absent"), TransitionGuard("present")
        assert await runs.transition_owned(R, A, RunStatus.CANCELLED, None, present) == GuardFailed()
        assert await runs.transition_owned(R, B, RunStatus.CANCELLED, None, present) == FenceLost()
        assert await runs.transition_owned(RunId("nowhere"), A, RunStatus.CANCELLED, None, present) == NotFound()
        assert await runs.transition_owned(R, A, RunStatus.RUNNING, '{"a":1}', absent) == Transitioned()
        assert await runs.transition_owned(R, A, RunStatus.RUNNING, None, {}) == Transitioned()
        assert await runs.request_cancel(R, 0) == CancelRequested(0)
        assert await runs.transition_owned(R, A, RunStatus.RUNNING, '{"a":2}', absent) == GuardFailed()
        assert (await runs.get(R)).state_json == '{"a":1}'
        assert await runs.transition_owned(R, A, RunStatus.CANCELLED, None, present) == Transitioned()
        assert (await runs.get(R)).cancel_requested_at_ms == 0

    @case(46, 47)
    async def test_the_guard_is_judged_after_the_fence_and_with_the_write(self, runs: Any) -> None:
        await runs.create(R, "{}")
        await runs.claim_and_own(R, PENDING, A, 0)
        present, absent = TransitionGuard("present"), TransitionGuard("absent")
        other = OwnerId("host-a", 101, "other")
        assert await runs.transition_owned(R, other, "running", guard=absent) == FenceLost()
        assert await runs.transition_owned("missing", A, "running", guard=absent) == NotFound()
        assert await runs.transition_owned(R, A, "cancelled", guard=present) == GuardFailed()
        assert await runs.transition_owned(R, A, "running", '{"a":1}', absent) == Transitioned()
        await runs.request_cancel(R, 500)
        assert await runs.transition_owned(R, A, "running", guard=absent) == GuardFailed()
        assert await runs.transition_owned(R, A, "cancelled", guard=present) == Transitioned()
