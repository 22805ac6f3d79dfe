"""Helpers of the chapters about auxiliary stores."""

import json
from typing import Any, Final

from belay_core.ids import RunId
from belay_core.records.attempt import Attempt, JsonValue
from belay_core.records.owner import OwnerId
from belay_core.records.run import CreateOptions, RunStatus
from belay_core.records.waiting import Wait, WaitingRow
from belay_core.stores.run_contract import Transitioned
from belay_core.stores.waiting import Parked
from belay_testing.conformance.parts import PENDING, A, R, own

LONG: Final = RunId("長" * 1_000)
"""A legal id that is too long for an index."""
ELSEWHERE: Final = "0" * 32
"""The name of a database that is not this one."""
QUESTION: Final[JsonValue] = {"kind": "human", "prompt": "Soll ich?", "attempt": 1, "none": None}


async def parked(stores: Any, run_id: RunId, *wait: Any, suspend: bool = True, **more: Any) -> WaitingRow:
    """A new run that waits; suspended, unless ``A`` is to keep it."""
    await own(stores.runs, run_id=run_id, now=int(stores.clock.now()))
    answer = await stores.waiting.park(run_id, Wait(*wait, **more), A)
    assert isinstance(answer, Parked)
    if suspend:
        assert await stores.runs.transition_owned(run_id, A, RunStatus.SUSPENDED) == Transitioned()
    return answer.row


async def over(
    stores: Any, run_id: RunId = R, status: RunStatus = RunStatus.COMPLETED, parent: RunId | None = None
) -> None:
    """A new run that was owned, has an attempt, and has ended."""
    await stores.runs.create(run_id, "{}", CreateOptions(parent))
    await stores.runs.claim_and_own(run_id, PENDING, A, int(stores.clock.now()))
    await stores.attempts.put(Attempt(run_id, "digest", 1, "running", 1, {}), A)
    assert await stores.runs.transition_owned(run_id, A, status) == Transitioned()


async def kinds(stores: Any, run_id: RunId = R) -> list[str]:
    """The kinds of a run's events, in order."""
    return [entry.kind for entry in await stores.journal.read(run_id)]


async def facts(stores: Any, run_id: RunId = R) -> list[tuple[str, str, int | None]]:
    """The kind, the owner's nonce and the time of each ownership fact of a run, in order."""
    found: list[tuple[str, str, int | None]] = []
    for entry in await stores.journal.ownership(run_id):
        reported = json.loads(entry.facts)
        assert set(reported) == {"owner", "granted_at_ms"}
        owner = OwnerId(**reported["owner"])
        found.append((entry.kind.removeprefix("ownership."), owner.nonce, reported["granted_at_ms"]))
    return found


async def exists(stores: Any, *run_ids: str) -> list[bool]:
    """Whether each of these runs exists, as these stores see it."""
    return [bool(await stores.runs.lineage(RunId(run_id))) for run_id in run_ids]
