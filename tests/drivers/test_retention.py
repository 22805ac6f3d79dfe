"""Deleting runs: only what is over and has no live child, wholly, and never out of the journal."""

import asyncio
import json

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from belay_core import commands
from belay_core.errors import RetentionError, RunStoreError
from belay_core.ids import RunId
from belay_core.outcomes.engine import Started
from belay_core.outcomes.retention import ChildrenLive, Deleted, StillLive
from belay_core.outcomes.runs import NotFound
from belay_core.records.attempt import Attempt, AttemptId
from belay_core.records.owner import OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus

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


async def kinds(stores, run_id):
    return [entry.kind for entry in await stores.journal.read(run_id)]


async def left(stores, run_id):
    """In which tables anything of the run is left."""
    from belay_drivers.sql.keys import key_of

    def count(tx):
        query = "SELECT count(*) FROM {} WHERE run_id = '{}'"
        return {name for name in TABLES if tx.exec_driver_sql(query.format(name, key_of(run_id))).scalar_one()}

    return await stores.runs._database.read(count)


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
@pytest.mark.parametrize("run_id", [RUN, LONG], ids=["short", "long"])
async def test_a_run_that_is_over_goes_with_all_that_belongs_to_it_but_its_journal(stores, run_id, status):
    await over(stores, run_id, status=status)
    before = await stores.journal.read(run_id)
    owned = await stores.journal.ownership(run_id)
    assert await left(stores, run_id) == set(TABLES) - {"belay_approvals"}
    assert await stores.retention.delete(run_id) == Deleted(int(stores.clock.now()))
    assert await left(stores, run_id) == set()
    assert await stores.attempts.get(AttemptId(run_id, "digest", 1)) is None
    with pytest.raises(RunStoreError, match="not_found_row"):
        await stores.runs.get(run_id)
    *rest, tombstone = await stores.journal.read(run_id)
    assert tuple(rest) == before
    assert (tombstone.kind, tombstone.run_id, tombstone.at_ms) == ("deleted", run_id, int(stores.clock.now()))
    assert json.loads(tombstone.facts)["status"] == status.value
    assert await stores.journal.ownership(run_id) == owned
    assert await stores.retention.delete(run_id) == NotFound()


async def test_a_workflows_run_goes_with_its_approvals_and_frees_its_key(kit):
    lease = await kit.own(idempotency_key="k")
    await kit.ask(lease)
    await kit.settle(lease, RunStatus.FAILED)
    assert await left(kit.stores, RunId("run-1")) == set(TABLES)
    assert isinstance(await kit.stores.retention.delete(RunId("run-1")), Deleted)
    assert await left(kit.stores, RunId("run-1")) == set()
    assert await kit.engine.find_approval("ap-1") is None
    assert await kit.start("run-2", idempotency_key="k") == Started(RunId("run-2"))
    assert await kit.start("run-1") == Started(RunId("run-1"))
    assert (await kit.kinds())[-2:] == ["deleted", "created"]
    again = (await kit.acquire(limit=2))[0].lease
    await kit.engine.cancel(commands.Cancel(again.run_id))
    numbers = [entry.entry for entry in await kit.engine.journal(RunId("run-1"))]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("status", [RunStatus.PENDING, RunStatus.RUNNING, RunStatus.SUSPENDED])
async def test_a_run_that_is_not_over_stays(stores, status):
    await stores.runs.create(RUN, "{}")
    if status is not RunStatus.PENDING:
        await stores.runs.claim_and_own(RUN, PENDING, A, int(stores.clock.now()))
    if status is RunStatus.SUSPENDED:
        await stores.runs.transition_owned(RUN, A, status)
    before = await stores.runs.get(RUN)
    assert await stores.retention.delete(RUN) == StillLive(status)
    assert await stores.retention.delete(RunId("missing")) == NotFound()
    assert await stores.runs.get(RUN) == before
    assert "deleted" not in await kinds(stores, RUN)


async def test_a_parent_stays_while_a_child_lives_and_its_other_children_lose_it(stores):
    await over(stores, RUN)
    await over(stores, RunId("done"), RUN)
    await stores.runs.create(RunId("live-1"), "{}", CreateOptions(RUN))
    await stores.runs.create(RunId("live-2"), "{}", CreateOptions(RUN))
    assert await stores.retention.delete(RUN) == ChildrenLive(2)
    assert (await stores.runs.get(RunId("done"))).parent_run_id == RUN
    for name in ("live-1", "live-2"):
        await stores.runs.claim_and_own(RunId(name), PENDING, A, int(stores.clock.now()))
        await stores.runs.transition_owned(RunId(name), A, RunStatus.CANCELLED)
    assert isinstance(await stores.retention.delete(RUN), Deleted)
    for name in ("done", "live-1", "live-2"):
        child = await stores.runs.get(RunId(name))
        assert (child.parent_run_id, (await kinds(stores, RunId(name)))[-1]) == (None, "parent_deleted")


async def test_a_new_run_under_the_id_goes_on_counting(stores):
    for life in range(3):
        await over(stores, RUN)
        entries = [*await stores.journal.read(RUN), *await stores.journal.ownership(RUN)]
        numbers = sorted(entry.entry for entry in entries)
        assert numbers == list(range(1, 4 + 5 * life + 1))
        assert isinstance(await stores.retention.delete(RUN), Deleted)
    assert await kinds(stores, RUN) == ["created", "deleted"] * 3


async def test_deleting_at_once_happens_once(shared_store):
    async with shared_store as stores:
        await over(stores, RUN)
        answers = await asyncio.gather(*(stores.retention.delete(RUN) for _ in range(4)))
        assert sorted(type(answer).__name__ for answer in answers) == ["Deleted", *["NotFound"] * 3]
        assert (await kinds(stores, RUN)).count("deleted") == 1


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


async def test_a_run_made_while_its_namesake_is_deleted_counts_behind_it(shared_store):
    async with shared_store as stores:
        for _ in range(8):
            await over(stores, RUN)

            async def create():
                while True:
                    try:
                        return await stores.runs.create(RUN, "{}")
                    except RunStoreError as taken:
                        assert taken.code == "constraint"  # noqa: PT017

            _, deleted = await asyncio.gather(create(), stores.retention.delete(RUN))
            assert isinstance(deleted, Deleted)
            assert (await kinds(stores, RUN))[-2:] == ["deleted", "created"]
            await stores.runs.claim_and_own(RUN, PENDING, A, int(stores.clock.now()))
            await stores.runs.transition_owned(RUN, A, RunStatus.FAILED)
            await stores.retention.delete(RUN)


async def test_a_bad_id_is_refused(stores):
    with pytest.raises(RetentionError) as refused:
        await stores.retention.delete(RunId(""))
    assert str(refused.value) == "invalid_run: Retention.delete: run input is invalid"
    assert refused.value.cause == {"field": "run_id", "detail": "must be well-formed durable text"}
