"""What people still have to decide is listed from an index of its own, and nothing else is led over that index."""

import asyncpg
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.stores.approvals import AlreadyDecided, Decided
from belay_core.stores.runs import Settled

INDEX = "belay_approvals_open"
PLAN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "}
WHOLE = ("Seq Scan", "Sort", "SCAN belay_approvals\n", "SCAN belay_runs\n", "TEMP B-TREE")
"""What a plan says where all of a table is read, or all that is open is sorted."""
DECIDED = 20_000
FILLED = (
    f"""
WITH RECURSIVE s (g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM s WHERE g < {DECIDED + 10})
INSERT INTO belay_runs (run_id, status, workflow, version, created_at, finished_at, last_entry)
SELECT 'run-' || g, CASE WHEN g > {DECIDED} THEN 'suspended' ELSE 'completed' END, 'w', '1', g, g, 1 FROM s
""",  # noqa: S608  (constants of this file)
    "INSERT INTO belay_run_values (run_id, state) SELECT run_id, '{}' FROM belay_runs",
    """
INSERT INTO belay_attempts (run_id, step_key_digest, full_key, attempt, step, kind, state, idempotent, started_at, meta)
SELECT run_id, 'd', 'g#1', 1, 'g', 'gate', 'waiting', 1, created_at, '{}' FROM belay_runs
""",
    """
INSERT INTO belay_approvals
  (run_id, step_key_digest, approval_id, gate, subject, subject_digest, asked_at, decision, decided_at)
SELECT run_id, 'd', 'ap-' || run_id, 'g', '{}', 'd', created_at,
  CASE WHEN status = 'completed' THEN 'approved' END, CASE WHEN status = 'completed' THEN created_at END
FROM belay_runs
""",
)


@pytest.mark.parametrize("analysed", [False, True])
async def test_the_list_of_open_approvals_walks_its_index_and_stops(shared_store, raw, analysed):
    async with shared_store as stores:
        await raw(stores, *FILLED, *(["ANALYZE"] if analysed else []))
        sent = []

        def note(_connection, _cursor, statement, parameters, *_more):
            if "FROM belay_approvals" in statement:
                sent.append((statement, parameters))

        database = stores.runs._database
        for engine in set(database.sync_engines):
            event.listen(engine, "before_cursor_execute", note)
        listed = await stores.approvals.list(commands.ListApprovals(limit=4))
        assert [each.approval_id for each in listed] == [f"ap-run-{DECIDED + number}" for number in (1, 2, 3, 4)]
        statement, parameters = sent[0]

        def explain(tx):
            return tx.exec_driver_sql(PLAN[database.dialect.name] + statement, parameters).all()

        plan = "\n".join(str(row[-1]) for row in await database.read(explain)) + "\n"
        assert INDEX in plan, plan
        assert not [word for word in WHOLE if word in plan], plan


LOOKS = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = $1"


async def test_what_is_asked_of_one_run_is_not_looked_for_among_all_that_is_open(belay_postgres, make_kit):
    """While nothing is open that way looks the shortest, and a plan made then is kept when much is."""
    async with belay_postgres as stores:
        kit = make_kit(stores)
        lease = await kit.own()
        one = commands.ListApprovals(RunId("run-1"))
        for number in (1, 2):
            await kit.ask(lease, f"editor#{number}", f"ap-{number}")
        assert len(await kit.stores.approvals.list(one)) == 2
        engine = create_async_engine(belay_postgres.url.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.connect() as connection:
            assert len(await stores.within(connection).approvals.list(one)) == 2
        await engine.dispose()
        assert isinstance(await kit.decide("ap-1"), Decided)
        assert isinstance(await kit.decide("ap-1"), AlreadyDecided)
        # The end that withdraws a question is written in steps, the other goes with a flush.
        news = (await kit.renew(lease)).pending_signal_ms
        assert isinstance(await kit.settle(lease, RunStatus.COMPLETED, seen_ms=news), Settled)
        assert isinstance(await kit.settle(await kit.own("run-2"), RunStatus.COMPLETED), Settled)
    # A connection that has ended has told the server's counts all it did.
    watching = await asyncpg.connect(belay_postgres.url)
    try:
        assert await watching.fetchval(LOOKS, INDEX) == 0
    finally:
        await watching.close()
