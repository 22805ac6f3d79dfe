"""The fence, part by part: a row that differs in a single part of the lease takes no owned write.

A failover to a replica that lags behind can leave such rows: the same epoch under another nonce, or an owner whose
epoch has moved on. The store knows the lease from before, so that nothing but the statement itself can refuse.
"""

from typing import Any

import pytest

from belay_core import commands
from belay_core.outcomes.runs import FenceLost
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepState

PARTS = {
    "host": "owner_host_id = 'elsewhere'",
    "pid": "owner_pid = owner_pid + 1",
    "nonce": "owner_nonce = 'another'",
    "epoch": "epoch = epoch + 1",
}


async def writes(kit, lease, name) -> Any:
    sleep = kit.step("sleep#1", StepState.WAITING, kind=StepKind.SLEEP)
    withdrawn = kit.gate("other#1", StepState.CANCELLED)
    match name:
        case "record":
            return await kit.record(lease, kit.step())
        case "record several":
            return await kit.record(lease, kit.step(), kit.step("more#1"))
        case "renew":
            return await kit.renew(lease)
        case "ask":
            return await kit.ask(lease)
        case "sleep":
            return await kit.engine.sleep(commands.Sleep(lease, sleep))
        case "withdraw":
            return await kit.engine.withdraw(commands.Withdraw(lease, withdrawn))
        case "park":
            return await kit.park(lease)
        case _:
            return await kit.settle(lease, RunStatus.COMPLETED)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["record", "record several", "renew", "ask", "sleep", "withdraw", "park", "settle"])
async def test_an_owned_write_is_refused_where_a_single_part_of_the_lease_differs(kit, raw, name, part):
    lease = await kit.own()
    await kit.record(lease, kit.step("before#1"))
    await raw(kit.stores, f"UPDATE belay_runs SET {PARTS[part]}")  # noqa: S608  (a constant of this file)
    assert await writes(kit, lease, name) == FenceLost()
    assert await kit.attempts() == {"before#1": (await kit.attempts())["before#1"]}
    assert (await kit.run()).status is RunStatus.RUNNING
