"""A job that is done once, whoever comes first, over any of belay's stores: the contract without an engine."""

from collections.abc import Awaitable, Callable
from typing import assert_never

from belay_core import Stores
from belay_core.clock import reading
from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunRow, RunStatus, is_terminal_run_status
from belay_core.stores.run_contract import (
    Activated,
    AlreadyClaimed,
    EvidenceRequired,
    FenceLost,
    GuardFailed,
    HeartbeatFresh,
    NotFound,
    SnapshotChanged,
    Transitioned,
)


async def once(stores: Stores, job: str, me: OwnerId, work: Callable[[], Awaitable[None]]) -> str:
    """Do the job if nobody else does or has done it; says ``done``, ``busy``, ``over`` or ``lost``.

    A job whose worker has not been heard of for thirty seconds is done again.
    """
    run_id = RunId(job)
    row = await _found(stores, run_id)
    if is_terminal_run_status(row.status):
        return "over"
    if not await _owned(stores, row, me):
        return "busy"
    await work()
    ended = await stores.runs.transition_owned(run_id, me, RunStatus.COMPLETED)
    match ended:
        case Transitioned():
            return "done"
        case FenceLost() | GuardFailed() | NotFound():
            return "lost"
        case _:
            assert_never(ended)


async def _found(stores: Stores, run_id: RunId) -> RunRow:
    try:
        await stores.runs.create(run_id, "{}")
    except RunStoreError as error:
        if error.code != "constraint":
            raise
    return await stores.runs.get(run_id)


async def _owned(stores: Stores, row: RunRow, me: OwnerId) -> bool:
    now = reading(stores.clock)
    proof = None if row.owner is None else LivenessEvidence(row.owner, now, "lease-expired")
    answer = await stores.runs.claim_and_own(row.run_id, row, me, now, proof)
    match answer:
        case Activated():
            return True
        case AlreadyClaimed() | HeartbeatFresh() | SnapshotChanged() | EvidenceRequired() | NotFound():
            return False
        case _:
            assert_never(answer)
