"""The run store, watched."""

from collections.abc import Mapping

from typing_extensions import override

from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.outcomes.runs import (
    AbandonClaimOutcome,
    ActivateOutcome,
    ClaimAndOwnOutcome,
    ClaimOutcome,
    HeartbeatOutcome,
    RecoverClaimOutcome,
    RequestCancelOutcome,
    StealOutcome,
    TransitionOutcome,
)
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunRow, RunSnapshot, RunStatus, TransitionGuard
from belay_core.stores.run_store import RunStore
from belay_core.telemetry import answers, names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Watch


class ObservedRunStore(RunStore):
    """A run store that does what the one it is given does, and leaves a span and a count of it."""

    def __init__(self, runs: RunStore, instruments: Instruments) -> None:
        self._runs = runs
        self._instruments = instruments

    @override
    async def get(self, run_id: RunId) -> RunRow:
        with Watch(self._instruments, names.RUN_GET, lambda: {names.RUN_ID: run_id}):
            return await self._runs.get(run_id)

    @override
    async def create(self, run_id: RunId, state_json: str, options: CreateOptions | None = None) -> None:
        with Watch(self._instruments, names.RUN_CREATE, lambda: {names.RUN_ID: run_id}):
            await self._runs.create(run_id, state_json, options)

    @override
    async def claim_and_own(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        owner: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence | None = None,
    ) -> ClaimAndOwnOutcome:
        watch = Watch(self._instruments, names.RUN_CLAIM_AND_OWN, lambda: _owned(run_id, owner), answers.CLAIM_AND_OWN)
        with watch as seen:
            return seen(await self._runs.claim_and_own(run_id, expected, owner, now_ms, evidence))

    @override
    async def lineage(self, run_id: RunId) -> tuple[RunRow, ...]:
        with Watch(self._instruments, names.RUN_LINEAGE, lambda: {names.RUN_ID: run_id}):
            return await self._runs.lineage(run_id)

    @override
    async def latest_round(self, run_id: RunId) -> RunRow:
        with Watch(self._instruments, names.RUN_LATEST_ROUND, lambda: {names.RUN_ID: run_id}):
            return await self._runs.latest_round(run_id)

    @override
    async def request_cancel(self, run_id: RunId, now_ms: Millis) -> RequestCancelOutcome:
        with Watch(self._instruments, names.RUN_REQUEST_CANCEL, lambda: {names.RUN_ID: run_id}) as seen:
            return seen(await self._runs.request_cancel(run_id, now_ms))

    @override
    async def request_cancel_lineage(self, run_id: RunId, now_ms: Millis) -> RequestCancelOutcome:
        with Watch(self._instruments, names.RUN_REQUEST_CANCEL_LINEAGE, lambda: {names.RUN_ID: run_id}) as seen:
            return seen(await self._runs.request_cancel_lineage(run_id, now_ms))

    @override
    async def acknowledge_cancel(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> bool:
        with Watch(self._instruments, names.RUN_ACKNOWLEDGE_CANCEL, lambda: _owned(run_id, owner)):
            return await self._runs.acknowledge_cancel(run_id, owner, now_ms)

    @override
    async def claim(
        self, run_id: RunId, expected: RunSnapshot | RunRow, claimant: OwnerId, now_ms: Millis
    ) -> ClaimOutcome:
        with Watch(self._instruments, names.RUN_CLAIM, lambda: _claimed(run_id, claimant), answers.CLAIM) as seen:
            return seen(await self._runs.claim(run_id, expected, claimant, now_ms))

    @override
    async def activate(
        self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis, expected: RunSnapshot | RunRow
    ) -> ActivateOutcome:
        watch = Watch(self._instruments, names.RUN_ACTIVATE, lambda: _claimed(run_id, claimant), answers.ACTIVATE)
        with watch as seen:
            return seen(await self._runs.activate(run_id, claimant, claimed_at_ms, expected))

    @override
    async def abandon_claim(self, run_id: RunId, claimant: OwnerId, claimed_at_ms: Millis) -> AbandonClaimOutcome:
        name, counted = names.RUN_ABANDON_CLAIM, answers.ABANDON_CLAIM
        with Watch(self._instruments, name, lambda: _claimed(run_id, claimant), counted) as seen:
            return seen(await self._runs.abandon_claim(run_id, claimant, claimed_at_ms))

    @override
    async def recover_claim(
        self,
        run_id: RunId,
        stale_claimant: OwnerId,
        claimed_at_ms: Millis,
        observer: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> RecoverClaimOutcome:
        def identity() -> Mapping[str, str]:
            return {names.RUN_ID: run_id, names.OBSERVER_HOST_ID: observer.host_id}

        with Watch(self._instruments, names.RUN_RECOVER_CLAIM, identity, answers.RECOVER_CLAIM) as seen:
            recover = self._runs.recover_claim
            return seen(await recover(run_id, stale_claimant, claimed_at_ms, observer, now_ms, evidence))

    @override
    async def steal(
        self,
        run_id: RunId,
        expected: RunSnapshot | RunRow,
        claimant: OwnerId,
        now_ms: Millis,
        evidence: LivenessEvidence,
    ) -> StealOutcome:
        with Watch(self._instruments, names.RUN_STEAL, lambda: _claimed(run_id, claimant), answers.STEAL) as seen:
            return seen(await self._runs.steal(run_id, expected, claimant, now_ms, evidence))

    @override
    async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> HeartbeatOutcome:
        watch = Watch(self._instruments, names.RUN_RECONFIRM, lambda: _owned(run_id, owner), answers.HEARTBEAT)
        with watch as seen:
            return seen(await self._runs.reconfirm(run_id, owner, now_ms))

    @override
    async def heartbeat(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> HeartbeatOutcome:
        watch = Watch(self._instruments, names.RUN_HEARTBEAT, lambda: _owned(run_id, owner), answers.HEARTBEAT)
        with watch as seen:
            return seen(await self._runs.heartbeat(run_id, owner, now_ms))

    @override
    async def transition_owned(
        self,
        run_id: RunId,
        owner: OwnerId,
        to_status: RunStatus,
        state_json: str | None = None,
        guard: TransitionGuard | None = None,
    ) -> TransitionOutcome:
        watch = Watch(
            self._instruments,
            names.RUN_TRANSITION_OWNED,
            lambda: {**_owned(run_id, owner), names.TO: answers.to_status(to_status)},
            answers.transition_owned(to_status),
        )
        with watch as seen:
            return seen(await self._runs.transition_owned(run_id, owner, to_status, state_json, guard))


def _owned(run_id: RunId, owner: OwnerId) -> Mapping[str, str]:
    return {names.RUN_ID: run_id, names.OWNER_HOST_ID: owner.host_id}


def _claimed(run_id: RunId, claimant: OwnerId) -> Mapping[str, str]:
    return {names.RUN_ID: run_id, names.CLAIMANT_HOST_ID: claimant.host_id}
