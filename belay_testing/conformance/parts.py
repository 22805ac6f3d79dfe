"""Owners, runs and transitions that many chapters use."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import pytest

from belay_core.errors import AttemptStoreError, RunStoreError
from belay_core.ids import RunId
from belay_core.limits import HEARTBEAT_STALE_AFTER
from belay_core.records.attempt import Attempt, AttemptId, FinishAttempt
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus
from belay_core.stores.run_contract import Activated, Claimed, Transitioned

A: Final = OwnerId("host-a", 101, "owner-a")
B: Final = OwnerId("host-a", 202, "owner-b")
C: Final = OwnerId("host-b", 303, "owner-c")
PENDING: Final = RunSnapshot(RunStatus.PENDING)
R: Final = RunId("run-1")
STALE: Final = HEARTBEAT_STALE_AFTER
ID: Final = AttemptId(R, "digest", 1)
RUNNING: Final = Attempt(R, "digest", 1, "running", 5, {"step": "fetch"})


def evidence(about: OwnerId, by: OwnerId, at: int) -> LivenessEvidence:
    """Evidence of ``by`` that ``about`` was dead at this time (ms)."""
    if about.host_id == by.host_id:
        return LivenessEvidence(about, at, "same-host-pid-dead")
    return LivenessEvidence(about, at, "cross-host-unreachable-stale")


def finish(state: str = "completed", at: int = 9, **more: Any) -> FinishAttempt:
    """An end of the attempt ``ID``."""
    return FinishAttempt(R, "digest", 1, state, at, **more)


async def own(runs: Any, owner: OwnerId = A, now: int = 0, run_id: str = R) -> None:
    """A new run, owned."""
    await runs.create(run_id, "{}")
    assert await runs.claim_and_own(run_id, PENDING, owner, now) == Activated()


async def activated(runs: Any, owner: OwnerId = A, at: int = 0) -> None:
    """A new run, reserved and then owned."""
    await runs.create(R, "{}")
    assert await runs.claim(R, PENDING, owner, at) == Claimed(at)
    assert await runs.activate(R, owner, at, PENDING) == Activated()


async def chain(runs: Any, *ids: str, lineage: str = "line") -> None:
    """The rounds of a lineage, all pending."""
    for ordinal, run_id in enumerate(ids):
        await runs.create(run_id, "{}", CreateOptions(lineage_id=lineage, round_ordinal=ordinal))


async def complete(runs: Any, run_id: str, at: int = 0) -> None:
    """A pending run, owned and completed."""
    await runs.claim_and_own(run_id, PENDING, A, at)
    assert await runs.transition_owned(run_id, A, "completed") == Transitioned()


async def together(*calls: Awaitable[Any]) -> list[Any]:
    """The results of concurrent calls; one that fails gives its error."""
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def refused(call: Awaitable[object], code: str = "invalid_run") -> Any:
    """The run store's error that this call raises."""
    with pytest.raises(RunStoreError) as failure:
        await call
    assert failure.value.code == code
    return failure.value


async def refused_attempt(call: Awaitable[object], code: str = "invalid_attempt") -> Any:
    """The attempt store's error that this call raises."""
    with pytest.raises(AttemptStoreError) as failure:
        await call
    assert failure.value.code == code
    return failure.value
