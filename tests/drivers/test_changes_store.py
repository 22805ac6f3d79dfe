"""The feed where writers commit out of turn, a database was restored, or somebody damaged it.

What it promises besides is in the conformance suite.
"""

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from belay_core.errors import ChangesError
from belay_core.ids import RunId
from belay_core.records.changes import (
    START,
    MissingRun,
    RunChange,
    RunView,
)
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores.changes import ChangesPage, SourceChanged

A = OwnerId("host-a", 101, "owner-a")
PENDING = RunSnapshot(RunStatus.PENDING)
ELSEWHERE = "0" * 32
RENAME = f"UPDATE belay_store SET source = '{ELSEWHERE}'"  # noqa: S608
BEHIND = "SELECT count(*) FROM belay_journal WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())"


@pytest.fixture
def stores(kit):
    return kit.stores


async def settled(stores):
    """Wait until everything written can be read: on a shared server other tests' transactions delay the feed."""
    database = stores.runs._database
    if database.dialect.name == "postgresql":
        while await database.read(lambda tx: tx.exec_driver_sql(BEHIND).scalar_one()):
            pass


class Follower:
    """Reads a feed to its end, again and again."""

    def __init__(self, stores, source, position=START, limit=100):
        self.changes, self.source, self.position, self.limit = stores.changes, source, position, limit
        self._stores = stores

    async def read(self):
        """All that changed since the last reading."""
        await settled(self._stores)
        return await self.read_now()

    async def read_now(self):
        """What can be read since the last reading; pages never go back, and never tell a run twice."""
        found: list[RunChange] = []
        while True:
            page = await self.changes.changes_since(self.source, self.position, self.limit)
            assert isinstance(page, ChangesPage)
            assert len(page.changes) <= self.limit
            assert page.source == self.source
            places = [self.position, *(change.position for change in page.changes)]
            assert places == sorted(set(places))
            assert page.next_position == places[-1]
            found += page.changes
            self.position = page.next_position
            if not page.has_more:
                return found

    async def ids(self):
        return [change.run_id for change in await self.read()]


async def follow(stores, **more):
    return Follower(stores, (await stores.changes.current()).source, **more)


async def own(stores, run_id, owner=A):
    await stores.runs.create(run_id, "{}")
    await stores.runs.claim_and_own(run_id, PENDING, owner, int(stores.clock.now()))


async def test_a_restored_or_renamed_source_has_to_be_rebuilt(stores, raw):
    await stores.runs.create(RunId("a"), "{}")
    await settled(stores)
    head = await stores.changes.current()
    await stores.runs.create(RunId("b"), "{}")
    await settled(stores)
    ahead = await stores.changes.current()
    # What a restored backup has forgotten.
    await raw(stores, "DELETE FROM belay_journal WHERE run_id = 'b'")
    assert await stores.changes.changes_since(head.source, ahead.position) == SourceChanged(head.source)
    assert isinstance(await stores.changes.changes_since(head.source, head.position), ChangesPage)
    await raw(stores, RENAME)
    assert await stores.changes.changes_since(head.source, START) == SourceChanged(ELSEWHERE)


async def test_a_writer_that_commits_late_is_waited_for(belay_postgres):
    """A transaction that began first and commits last: reading up to the newest number would miss what it wrote."""
    async with belay_postgres as stores:
        follower = await follow(stores)
        engine = create_async_engine(belay_postgres.url.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.connect() as late:
            await late.exec_driver_sql(
                "INSERT INTO belay_runs (run_id, status, created_at, last_entry) VALUES ('late', 'pending', 1, 1)"
            )
            await late.exec_driver_sql("INSERT INTO belay_run_values (run_id, state) VALUES ('late', '{}')")
            await late.exec_driver_sql(
                "INSERT INTO belay_journal (run_id, entry, at, kind, facts) VALUES ('late', 1, 1, 'created', '{}')"
            )
            await stores.runs.create(RunId("early"), "{}")
            await stores.runs.request_cancel(RunId("early"), 1)
            assert await follower.read_now() == []
            assert (await stores.changes.current()).position == START
            batch = await stores.changes.snapshot([RunId("early"), RunId("late")])
            assert batch.position == START
            assert isinstance(batch.runs[0], RunView)
            assert batch.runs[1] == MissingRun(RunId("late"))
            await late.commit()
        await engine.dispose()
        assert await follower.ids() == ["late", "early"]
        assert await follower.read() == []


async def test_a_run_whose_writers_overtook_each_other_is_reported_at_its_latest(belay_postgres):
    async with belay_postgres as stores:
        await own(stores, RunId("run"))
        follower = await follow(stores)
        await follower.read()
        engine = create_async_engine(belay_postgres.url.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.connect() as slow:
            # It has its number before the other writer does, and writes to the run after it.
            await slow.exec_driver_sql("SELECT pg_current_xact_id()")
            await stores.runs.request_cancel(RunId("run"), 1)
            await slow.exec_driver_sql("UPDATE belay_runs SET last_entry = last_entry + 1 WHERE run_id = 'run'")
            await slow.exec_driver_sql(
                "INSERT INTO belay_journal (run_id, entry, at, kind, facts) "
                "SELECT run_id, last_entry, 1, 'mine', '{}' FROM belay_runs WHERE run_id = 'run'"
            )
            assert await follower.read_now() == []
            await slow.commit()
        await engine.dispose()
        [change] = await follower.read()
        assert (change.run_id, change.kind, change.entry) == ("run", "mine", 5)
        assert await follower.read() == []


async def test_damage_is_reported_without_a_word_of_it(stores, raw, loosen):
    await own(stores, RunId("run"))
    await raw(stores, "UPDATE belay_runs SET cancel_acknowledgement = '{\"secret\":1}'")
    for call in (stores.changes.cancellation(RunId("run")), stores.changes.snapshot([RunId("run")])):
        with pytest.raises(ChangesError, match=r"decode_failed.*belay_runs row") as reported:
            await call
        assert "secret" not in str(reported.value)
    await loosen(stores, "belay_runs")
    await raw(stores, "UPDATE belay_runs SET cancel_acknowledgement = NULL, status = 'secret'")
    with pytest.raises(ChangesError, match="decode_failed"):
        await stores.changes.snapshot([RunId("run")])
