"""What a deletion leaves in the tables, and who meets it there; what it promises is in the conformance suite."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import Attempt
from belay_core.records.owner import OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus
from belay_core.stores.retention import ChildrenLive, Deleted

A = OwnerId("host-a", 101, "owner-a")
PENDING = RunSnapshot(RunStatus.PENDING)
RUN = RunId("run")
LONG = RunId("長" * 1000)
TABLES = ("belay_runs", "belay_run_values", "belay_attempts", "belay_approvals")


@pytest.fixture
def stores(kit):
    return kit.stores


async def over(stores, run_id, parent=None, status=RunStatus.COMPLETED):
    await stores.runs.create(run_id, "{}", CreateOptions(parent))
    await stores.runs.claim_and_own(run_id, PENDING, A, int(stores.clock.now()))
    await stores.attempts.put(Attempt(run_id, "digest", 1, "running", 1, {}), A)
    await stores.runs.transition_owned(run_id, A, status)


async def left(stores, run_id):
    """In which tables anything of the run is left."""
    from belay_drivers.sql.statements.keys import key_of

    def count(tx):
        query = "SELECT count(*) FROM {} WHERE run_id = '{}'"
        return {name for name in TABLES if tx.exec_driver_sql(query.format(name, key_of(run_id))).scalar_one()}

    return await stores.runs._database.read(count)


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
@pytest.mark.parametrize("run_id", [RUN, LONG], ids=["short", "long"])
async def test_of_a_run_nothing_is_left_but_its_journal(stores, run_id, status):
    await over(stores, run_id, status=status)
    assert await left(stores, run_id) == set(TABLES) - {"belay_approvals"}
    assert await stores.retention.delete(run_id) == Deleted(int(stores.clock.now()))
    assert await left(stores, run_id) == set()


async def test_of_a_workflows_run_nothing_is_left_but_its_journal(kit):
    lease = await kit.own()
    await kit.ask(lease)
    await kit.settle(lease, RunStatus.FAILED)
    assert await left(kit.stores, RunId("run-1")) == set(TABLES)
    assert isinstance(await kit.stores.retention.delete(RunId("run-1")), Deleted)
    assert await left(kit.stores, RunId("run-1")) == set()


async def test_a_child_made_meanwhile_has_no_parent_to_be_made_of(belay_postgres):
    """A child's insert that came first is waited for; one that comes later finds no parent."""
    async with belay_postgres as stores:
        await over(stores, RUN)
        engine = create_async_engine(belay_postgres.url.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.connect() as child:
            await child.exec_driver_sql(
                "INSERT INTO belay_runs (run_id, status, created_at, parent_run_id) "
                "VALUES ('child', 'pending', 1, 'run')"
            )
            deleting = asyncio.ensure_future(stores.retention.delete(RUN))
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            while not (await child.exec_driver_sql(waiting)).scalar_one():
                pass
            await child.commit()
            assert await deleting == ChildrenLive(1)
            await child.exec_driver_sql("DELETE FROM belay_runs WHERE run_id = 'child'")
            await child.commit()
        await engine.dispose()
        assert isinstance(await stores.retention.delete(RUN), Deleted)
        with pytest.raises(RunStoreError, match="constraint"):
            await stores.runs.create(RunId("child"), "{}", CreateOptions(RUN))
