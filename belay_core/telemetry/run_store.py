"""The run store, watched."""

from collections.abc import Mapping

from typing_extensions import override

from belay_core.ids import RunId
from belay_core.moments import Millis
from belay_core.outcomes.runs import ClaimAndOwnOutcome, HeartbeatOutcome, TransitionOutcome
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
