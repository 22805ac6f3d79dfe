"""The end of an attempt that had to wait for another change of its run sees what that has left, on PostgreSQL."""

import asyncio

from sqlalchemy import text

from belay_core.ids import RunId
from belay_core.records.attempt import Attempt, FinishAttempt
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores.run_contract import FenceLost

R = RunId("bare")
OWNER = OwnerId("h", 1, "n")
RUNNING = Attempt(R, "d", 1, "running", 5, {})
OVER = text(
    "UPDATE belay_runs SET status = 'completed', owner_host_id = NULL, owner_pid = NULL, owner_nonce = NULL,"
    " heartbeat_at = NULL, finished_at = 1"
)
WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))")
"""Who waits for this connection; what ``pg_stat_activity`` says stands still within a transaction."""


async def test_an_attempt_that_waited_for_the_end_of_its_run_is_not_ended(belay_postgres):
    async with belay_postgres as stores:
        await stores.runs.create(R, "{}")
        await stores.runs.claim_and_own(R, RunSnapshot(RunStatus.PENDING), OWNER, 1)
        await stores.attempts.put(RUNNING, OWNER)
        engine = stores.runs._database._engines.write.engine
        async with engine.connect() as rival:
            await rival.execute(OVER)
            end = FinishAttempt(R, "d", 1, "completed", 9, outcome=1)
            finishing = asyncio.ensure_future(stores.attempts.finish(end, OWNER))
            while not finishing.done() and not await rival.scalar(WAITING):
                pass
            await rival.commit()
        assert await asyncio.wait_for(finishing, 20) == FenceLost()
        assert await stores.attempts.get(RUNNING) == RUNNING
