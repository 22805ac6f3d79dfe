"""Following all runs: no change is missed, each run is told once and at its latest, a restored source is noticed."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from belay_core import commands
from belay_core.admission.changes import MOST_RUNS
from belay_core.errors import ChangesError
from belay_core.ids import RunId
from belay_core.outcomes.changes import ChangesPage, SourceChanged
from belay_core.outcomes.retention import Deleted
from belay_core.outcomes.runs import NotFound
from belay_core.records.attempt import Attempt
from belay_core.records.changes import (
    START,
    Acknowledgement,
    CancellationView,
    DeletedRun,
    FeedPosition,
    MissingRun,
    RunChange,
    RunFilters,
    RunView,
)
from belay_core.records.owner import OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus
from belay_core.records.waiting import Wait
from belay_testing.cases import case

A = OwnerId("host-a", 101, "owner-a")
PENDING = RunSnapshot(RunStatus.PENDING)
LONG = RunId("長" * 1000)
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


async def over(stores, run_id, status=RunStatus.COMPLETED):
    await own(stores, run_id)
    await stores.runs.transition_owned(run_id, A, status)


async def test_a_new_source_has_a_name_and_nothing_to_tell(stores):
    head = await stores.changes.current()
    assert len(head.source) == 32
    assert head.position == START
    assert await stores.changes.changes_since(head.source, START) == ChangesPage(head.source, (), START, has_more=False)


@case(59)
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_each_run_is_told_once_and_at_its_latest(stores, limit):
    follower = await follow(stores, limit=limit)
    for name in ("a", "b", "c", "d"):
        await stores.runs.create(RunId(name), "{}")
    await stores.runs.request_cancel(RunId("b"), 1)
    await stores.runs.request_cancel(RunId("a"), 1)
    changes = await follower.read()
    assert [(each.run_id, each.entry, each.kind, each.deleted) for each in changes] == [
        ("c", 1, "created", False),
        ("d", 1, "created", False),
        ("b", 2, "cancel_requested", False),
        ("a", 2, "cancel_requested", False),
    ]
    assert {each.at_ms for each in changes} == {int(stores.clock.now())}
    assert (await stores.changes.current()).position == follower.position
    assert await follower.read() == []
    await stores.runs.request_cancel(RunId("d"), 1)
    assert await follower.ids() == ["d"]


async def test_a_page_says_whether_there_is_more(stores):
    for name in ("a", "b", "c"):
        await stores.runs.create(RunId(name), "{}")
    await settled(stores)
    source = (await stores.changes.current()).source
    more = [(await stores.changes.changes_since(source, START, limit)).has_more for limit in (1, 2, 3, 4)]
    assert more == [True, True, False, False]


async def test_one_write_to_many_runs_is_told_in_pages(stores):
    for ordinal in range(7):
        await stores.runs.create(RunId(f"round-{ordinal}"), "{}", CreateOptions(None, "chain", ordinal))
    follower = await follow(stores, limit=2)
    await follower.read()
    await stores.runs.request_cancel_lineage(RunId("round-0"), 5)
    assert sorted(await follower.ids()) == [f"round-{ordinal}" for ordinal in range(7)]


async def test_all_changes_are_told_but_heartbeats_and_steps(kit):
    stores = kit.stores
    follower = await follow(stores)
    lease = await kit.own()
    assert await follower.ids() == ["run-1"]
    await kit.renew(lease)
    await kit.record(lease, kit.step())
    await own(stores, RunId("bare"))
    await follower.read()
    await stores.runs.heartbeat(RunId("bare"), A, kit.now)
    await stores.attempts.put(Attempt(RunId("bare"), "d", 1, "running", 1, {}), A)
    assert await follower.read() == []
    for change in (
        lambda: kit.ask(lease),
        kit.decide,
        lambda: kit.engine.cancel(commands.Cancel(RunId("run-1"))),
        lambda: kit.settle(lease, RunStatus.CANCELLED, seen_ms=None),
    ):
        answer = await change()
        if "News" in repr(answer):
            seen = (await kit.renew(lease)).news_ms
            await kit.settle(lease, RunStatus.CANCELLED, seen_ms=seen)
        assert await follower.ids() == ["run-1"]
    bare = RunId("bare")
    for change in (
        lambda: stores.runs.transition_owned(bare, A, RunStatus.RUNNING, '{"n":1}'),
        lambda: stores.runs.request_cancel(bare, 1),
        lambda: stores.runs.acknowledge_cancel(bare, A, 2),
        lambda: stores.journal.append(bare, A, "mine", None),
        lambda: stores.waiting.park(bare, Wait("event"), A),
        lambda: stores.waiting.wake(bare),
        lambda: stores.runs.transition_owned(bare, A, RunStatus.COMPLETED),
        lambda: stores.retention.delete(bare),
        lambda: stores.runs.create(bare, "{}"),
    ):
        await change()
        assert await follower.ids() == ["bare"]


async def test_a_deletion_is_told_with_the_full_id_and_a_new_life_is_a_later_change(stores):
    follower = await follow(stores)
    for run_id in (RunId("short"), LONG):
        await over(stores, run_id)
        await follower.read()
        assert isinstance(await stores.retention.delete(run_id), Deleted)
        [gone] = await follower.read()
        assert (gone.run_id, gone.deleted, gone.kind) == (run_id, True, "deleted")
        assert (await Follower(stores, follower.source).read())[-1] == gone
        await stores.runs.create(run_id, "{}")
        [again] = await follower.read()
        assert (again.run_id, again.deleted, again.kind) == (run_id, False, "created")
        assert again.entry == gone.entry + 1
        assert again.position > gone.position


async def test_the_same_place_holds_over_a_reopening(shared_store, make_kit):
    async with shared_store as stores:
        await stores.runs.create(RunId("a"), "{}")
        follower = await follow(stores)
        assert await follower.ids() == ["a"]
    async with shared_store as stores:
        again = Follower(stores, follower.source, follower.position)
        assert await again.read() == []
        await stores.runs.create(RunId("b"), "{}")
        assert await again.ids() == ["b"]


async def test_another_source_or_a_place_ahead_has_to_be_rebuilt(stores, raw):
    await stores.runs.create(RunId("a"), "{}")
    await settled(stores)
    head = await stores.changes.current()
    rebuilt = SourceChanged(head.source)
    assert await stores.changes.changes_since(ELSEWHERE, START) == rebuilt
    assert await stores.changes.changes_since(head.source, FeedPosition("f" * 16)) == rebuilt
    await stores.runs.create(RunId("b"), "{}")
    await settled(stores)
    ahead = await stores.changes.current()
    # What a restored backup has forgotten.
    await raw(stores, "DELETE FROM belay_journal WHERE run_id = 'b'")
    assert await stores.changes.changes_since(head.source, ahead.position) == rebuilt
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


async def test_a_run_whose_writers_overtook_each_other_is_told_at_its_latest(belay_postgres):
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


async def test_concurrent_writers_leave_no_gap(kit, shared_store):
    """Writers and a follower at once: every last change reaches the follower, whatever the order of commits."""
    names = [RunId(f"run-{number}") for number in range(24)]
    async with shared_store as stores:
        follower = await follow(stores, limit=5)
        seen: dict[RunId, int] = {}

        async def write(mine):
            for name in mine:
                await stores.runs.create(name, "{}")
                await stores.runs.request_cancel(name, 1)
                await stores.runs.claim_and_own(name, PENDING, A, int(stores.clock.now()))
                await stores.journal.append(name, A, "mine", None)

        writers = [asyncio.ensure_future(write(names[part::6])) for part in range(6)]
        while not all(writer.done() for writer in writers):
            for change in await follower.read_now():
                assert change.entry > seen.get(change.run_id, 0)
                seen[change.run_id] = change.entry
        await asyncio.gather(*writers)
        for change in await follower.read():
            seen[change.run_id] = change.entry
        assert seen == dict.fromkeys(names, 5)


async def test_a_batch_keeps_the_order_asked_for_and_tells_missing_from_deleted(stores):
    for name in ("a", "b"):
        await own(stores, RunId(name))
    await stores.waiting.park(RunId("b"), Wait("human", 5, "t", {"q": 1}), A)
    await over(stores, RunId("gone"))
    deleted = await stores.retention.delete(RunId("gone"))
    await own(stores, LONG)
    await settled(stores)
    ids = [RunId("b"), RunId("gone"), RunId("never"), LONG, RunId("a"), RunId("b")]
    batch = await stores.changes.snapshot(ids)
    assert batch.source == (await stores.changes.current()).source
    assert batch.position == (await stores.changes.current()).position
    assert [getattr(each, "run_id", None) or each.run.run_id for each in batch.runs] == ids
    first, gone, never, _, plain, last = batch.runs
    assert never == MissingRun(RunId("never"))
    assert gone == DeletedRun(RunId("gone"), 5, deleted.deleted_at_ms)
    assert first == last
    assert first.run == await stores.runs.get(RunId("b"))
    assert first.waiting == await stores.waiting.waiting(RunId("b"))
    assert first.cancellation == await stores.changes.cancellation(RunId("b"))
    assert (first.entry, plain.entry, plain.waiting) == (4, 3, None)
    assert await stores.changes.snapshot([]) == replace(batch, runs=())


async def test_a_batch_is_of_one_moment(shared_store):
    """A writer moves two runs together, and no batch sees one of them moved and the other not."""
    async with shared_store as stores:
        for ordinal in range(2):
            await stores.runs.create(RunId(f"r{ordinal}"), "{}", CreateOptions(None, "chain", ordinal))

        async def cancel():
            await stores.runs.request_cancel_lineage(RunId("r0"), 5)

        writer = asyncio.ensure_future(cancel())
        for _ in range(20):
            batch = await stores.changes.snapshot([RunId("r0"), RunId("r1")])
            asked = {view.cancellation.requested_at_ms for view in batch.runs}
            assert len(asked) == 1
        await writer


async def test_asked_seen_and_over_are_three_facts(stores):
    run_id = RunId("run")
    assert await stores.changes.cancellation(run_id) == NotFound()
    await own(stores, run_id)
    view = CancellationView(run_id, RunStatus.RUNNING, None, None, terminal=False)
    assert await stores.changes.cancellation(run_id) == view
    await stores.runs.request_cancel(run_id, 500)
    assert await stores.changes.cancellation(run_id) == replace(view, requested_at_ms=500)
    for at in (600, 700):
        await stores.runs.acknowledge_cancel(run_id, A, at)
    seen = replace(view, requested_at_ms=500, acknowledgement=Acknowledgement(A, 600))
    assert await stores.changes.cancellation(run_id) == seen
    await stores.runs.transition_owned(run_id, A, RunStatus.COMPLETED)
    assert await stores.changes.cancellation(run_id) == replace(seen, status=RunStatus.COMPLETED, terminal=True)


async def listed(stores, *given, **more):
    """All pages of a listing."""
    found, cursor = [], None
    while True:
        page = await stores.changes.list_runs(*given, cursor=cursor, **more)
        found += [run.run_id for run in page.runs]
        cursor = page.cursor
        if cursor is None:
            return found


async def test_runs_are_listed_by_the_moment_of_their_creation_and_then_their_id(kit):
    stores = kit.stores
    for name in ("c", "a", "b"):
        await stores.runs.create(RunId(name), "{}")
    kit.clock.advance(1)
    await stores.runs.create(RunId("A"), "{}", CreateOptions(RunId("b")))
    await kit.start("d")
    await kit.start("e", workflow="other")
    whole = ["a", "b", "c", "A", "d", "e"]
    for limit in (1, 2, 3, 6, 200):
        assert await listed(stores, limit=limit) == whole
    assert await listed(stores, RunFilters(workflow="refund"), limit=1) == ["d"]
    assert await listed(stores, RunFilters(parent_run_id=RunId("b"))) == ["A"]
    await stores.runs.claim_and_own(RunId("b"), PENDING, A, kit.now)
    assert await listed(stores, RunFilters(RunStatus.PENDING), limit=2) == ["a", "c", "A", "d", "e"]
    assert await listed(stores, {"status": "running"}) == ["b"]
    page = await stores.changes.list_runs(limit=6)
    assert page.cursor is None
    assert page.source == (await stores.changes.current()).source


async def test_runs_made_while_pages_are_read_come_after_them(stores):
    for name in ("a", "b", "c"):
        await stores.runs.create(RunId(name), "{}")
    first = await stores.changes.list_runs(limit=2)
    stores.clock.advance(1)
    await stores.runs.create(RunId("0"), "{}")
    rest = await stores.changes.list_runs(limit=2, cursor=first.cursor)
    assert [run.run_id for run in (*first.runs, *rest.runs)] == ["a", "b", "c", "0"]


async def test_a_cursor_goes_with_its_filters_and_its_source(stores, raw):
    for name in ("a", "b", "c"):
        await stores.runs.create(RunId(name), "{}")
    pending = RunFilters(RunStatus.PENDING)
    cursor = (await stores.changes.list_runs(pending, 1)).cursor
    assert [run.run_id for run in (await stores.changes.list_runs(pending, 1, cursor)).runs] == ["b"]
    for other in (None, RunFilters(RunStatus.RUNNING), RunFilters(RunStatus.PENDING, "w")):
        with pytest.raises(ChangesError) as refused:
            await stores.changes.list_runs(other, 1, cursor)
        assert refused.value.cause == {"field": "cursor", "detail": "belongs to other filters"}
    await raw(stores, RENAME)
    assert await stores.changes.list_runs(pending, 1, cursor) == SourceChanged(ELSEWHERE)


TEXT = "must be well-formed durable text"
SOURCE, POSITION = "must be the name of a source", "must be a position of a feed"
BAD = [
    ("changes_since", ("x", "y", 0), "source", SOURCE),
    ("changes_since", (ELSEWHERE.upper() + "A", START), "source", SOURCE),
    ("changes_since", (ELSEWHERE, 0), "position", POSITION),
    ("changes_since", (ELSEWHERE, "0"), "position", POSITION),
    ("changes_since", (ELSEWHERE, f"{START}.ff.{'0' * 14}"), "position", POSITION),
    ("changes_since", (ELSEWHERE, f"{START}\n"), "position", POSITION),
    ("changes_since", (ELSEWHERE, START, 0), "limit", "must be an integer from 1 to 1000"),
    ("changes_since", (ELSEWHERE, START, 1001), "limit", "must be an integer from 1 to 1000"),
    ("changes_since", (ELSEWHERE, START, True), "limit", "must be an integer from 1 to 1000"),
    ("snapshot", ("abc",), "run_ids", "must be a list of run ids"),
    ("snapshot", (["a"] * 201,), "run_ids", "must be at most 200"),
    ("snapshot", (["a", ""],), "run_id", TEXT),
    ("list_runs", ("pending",), "filters", "must be an inert data record"),
    ("list_runs", ({"status": "nope"}, 0), "filters.status", "violates the durable contract"),
    (
        "list_runs",
        ({"workflow": ""},),
        "filters.workflow",
        "must be well-formed text without NUL, 1 to 512 bytes of UTF-8",
    ),
    ("list_runs", ({"parent_run_id": 1},), "filters.parent_run_id", TEXT),
    ("list_runs", (None, 0), "limit", "must be an integer from 1 to 200"),
    ("list_runs", (None, MOST_RUNS + 1), "limit", "must be an integer from 1 to 200"),
    ("list_runs", (None, 1, "x"), "cursor", "must be a cursor of a page of runs"),
    ("cancellation", ("\0",), "run_id", TEXT),
]


@pytest.mark.parametrize(("method", "given", "field", "detail"), BAD)
async def test_the_first_bad_parameter_is_named(belay_stores, method, given, field, detail):
    async with belay_stores as stores:
        with pytest.raises(ChangesError) as refused:
            await getattr(stores.changes, method)(*given)
        assert str(refused.value) == f"invalid_run: Changes.{method}: run input is invalid"
        assert refused.value.cause == {"field": field, "detail": detail}


async def test_damage_is_told_without_a_word_of_it(stores, raw, loosen):
    await own(stores, RunId("run"))
    await raw(stores, "UPDATE belay_runs SET cancel_acknowledgement = '{\"secret\":1}'")
    for call in (stores.changes.cancellation(RunId("run")), stores.changes.snapshot([RunId("run")])):
        with pytest.raises(ChangesError, match=r"decode_failed.*belay_runs row") as told:
            await call
        assert "secret" not in str(told.value)
    await loosen(stores, "belay_runs")
    await raw(stores, "UPDATE belay_runs SET cancel_acknowledgement = NULL, status = 'secret'")
    with pytest.raises(ChangesError, match="decode_failed"):
        await stores.changes.snapshot([RunId("run")])
