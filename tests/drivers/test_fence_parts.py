"""The fence, part by part: a row that differs in a single part of the lease takes no owned write.

A failover to a replica that lags behind can leave such rows: the same epoch under another nonce, or an owner whose
epoch has moved on. The store knows the lease from before, so that nothing but the statement itself can refuse.
"""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepState
from belay_core.stores.run_contract import FenceLost

PARTS = {
    "host": "owner_host_id = 'elsewhere'",
    "pid": "owner_pid = owner_pid + 1",
    "nonce": "owner_nonce = 'another'",
    "epoch": "epoch = epoch + 1",
}


WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))")
"""Who waits for this connection; what ``pg_stat_activity`` says stands still within a transaction."""
WRITES = ("record", "record several", "renew", "ask", "sleep", "withdraw", "park", "settle")


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
            return await kit.stores.attempts.sleep(commands.Sleep(lease, sleep))
        case "withdraw":
            return await kit.stores.approvals.withdraw(commands.Withdraw(lease, withdrawn))
        case "park":
            return await kit.park(lease)
        case _:
            return await kit.settle(lease, RunStatus.COMPLETED)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", WRITES)
async def test_an_owned_write_is_refused_where_a_single_part_of_the_lease_differs(kit, raw, name, part):
    lease = await kit.own()
    await kit.record(lease, kit.step("before#1"))
    await raw(kit.stores, f"UPDATE belay_runs SET {PARTS[part]}")  # noqa: S608  (a constant of this file)
    assert await writes(kit, lease, name) == FenceLost()
    assert await kit.attempts() == {"before#1": (await kit.attempts())["before#1"]}
    assert (await kit.run()).status is RunStatus.RUNNING


async def waited(kit, other, name, change):
    """A write that begins while somebody else's change of its run is not yet committed."""
    lease = await kit.own()
    await kit.record(lease, kit.step("before#1"))
    engine = other.runs._database._engines.write.engine
    async with engine.connect() as rival:
        await rival.exec_driver_sql(f"UPDATE belay_runs SET {change}")  # noqa: S608  (a constant of this file)
        writing = asyncio.ensure_future(writes(kit, lease, name))
        while not await rival.scalar(WAITING):
            pass
        await rival.commit()
    return lease, await writing


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_that_waited_for_a_takeover_is_refused(belay_postgres, make_kit, name):
    async with belay_postgres as stores, belay_postgres as other:
        kit = make_kit(stores)
        taken = "epoch = epoch + 1, owner_nonce = 'another'"
        _, answer = await waited(kit, other, name, taken)
        assert answer == FenceLost()
        assert [*(await kit.attempts())] == ["before#1"]
        seq = await stores.runs._database.read(
            lambda tx: tx.exec_driver_sql("SELECT write_seq FROM belay_runs").scalar_one()
        )
        assert seq == 1


@pytest.mark.parametrize("name", ["record", "record several", "ask", "sleep", "park", "settle"])
async def test_a_shared_write_that_waited_for_another_of_its_lease_is_not_taken_for_the_next(
    belay_postgres, make_kit, name
):
    async with belay_postgres as stores, belay_postgres as other:
        flushed: list[object] = []
        group_commit = stores.runs._parts.group_commit
        sent = group_commit._sent

        async def watched(works):
            flushed.extend(await sent(works))
            return flushed[-len(works) :]

        group_commit._sent = watched
        kit = make_kit(stores)
        _, answer = await waited(kit, other, name, "write_seq = write_seq + 1")
        assert not isinstance(answer, FenceLost)
        assert flushed[-1] is None
