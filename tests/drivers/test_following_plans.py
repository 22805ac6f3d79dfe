"""What is asked again and again is answered from an index, also by a database that has no statistics yet."""

import asyncpg
import pytest
from sqlalchemy import event

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.changes import START
from belay_core.records.owner import Lease, OwnerId
from belay_drivers.postgres import open_postgres

PLAN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "}
ROWS = 400
INSERT = """
WITH RECURSIVE s (g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM s WHERE g < {rows})
INSERT INTO belay_runs (run_id, status, workflow, version, created_at, last_entry, waiting_reason, waiting_wake_at)
SELECT 'run-' || g, 'suspended', 'w', '1', g, 1, 'reason-' || (g % 100), g FROM s
"""
BESIDE = (
    "INSERT INTO belay_run_values (run_id, state) SELECT run_id, '{}' FROM belay_runs",
    "INSERT INTO belay_journal (run_id, entry, at, kind, facts) SELECT run_id, 1, 1, 'created', '{}' FROM belay_runs",
)


async def source(stores):
    return (await stores.changes.current()).source


CALLS = {
    "belay_runs_created": lambda stores: stores.runs.list(commands.ListRuns(limit=3, before=RunId("run-200"))),
    "belay_runs_waiting ": lambda stores: stores.runs.wake(commands.Wake()),
    "belay_runs_waiting_reason": lambda stores: stores.waiting.waiting_runs("reason-7"),
    "belay_runs_waiting_cancelled": lambda stores: stores.waiting.waiting_runs(cancel_requested=True),
}


@pytest.mark.parametrize("index", CALLS)
async def test_the_statement_walks_its_index(shared_store, raw, index):
    async with shared_store as stores:
        await raw(stores, INSERT.format(rows=ROWS), *BESIDE)
        sent = []

        def note(_connection, _cursor, statement, parameters, *_more):
            if "belay_runs" in statement and statement.startswith("SELECT"):
                sent.append((statement, parameters))

        database = stores.runs._database
        for engine in set(database.sync_engines):
            event.listen(engine, "before_cursor_execute", note)
        await CALLS[index](stores)
        statement, parameters = sent[0]

        def explain(tx):
            if database.dialect.name == "postgresql":
                # Few rows fit one page, which is always read as a whole unless that is made dear.
                tx.exec_driver_sql("SET LOCAL enable_seqscan = off")
            return tx.exec_driver_sql(PLAN[database.dialect.name] + statement, parameters).all()

        plan = "\n".join(str(row[-1]) for row in await database.write(explain))
        assert index in plan, plan


MANY = 20_000
FINISHED = """
ALTER TABLE belay_runs SET (autovacuum_enabled = off);
INSERT INTO belay_runs (run_id, status, workflow, version, created_at, started_at, finished_at, epoch, last_entry)
SELECT 'run-' || g, 'completed', 'w', '1', g, g, g, 1, 3 FROM generate_series(1, {rows}) g
"""
SCANS = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'belay_runs'"
OWNER = OwnerId("host", 1, "nonce")
LEASE = Lease(RunId("run-1"), OWNER, 1)
ASKED = {
    "acquire": lambda stores: stores.runs.acquire(
        commands.Acquire(OWNER, ("w",), 50, dead=(OwnerId("host", 1, "gone"),))
    ),
    "find": lambda stores: stores.runs.find(RunId("run-1")),
    "history": lambda stores: stores.attempts.history(commands.History((RunId("run-1"), RunId("run-2")))),
    "list": lambda stores: stores.runs.list(commands.ListRuns(limit=3)),
    "renew": lambda stores: stores.runs.renew(commands.Renew((LEASE,))),
    "running_owners": lambda stores: stores.runs.running_owners("host"),
    "approvals": lambda stores: stores.approvals.list(commands.ListApprovals(limit=3)),
    "journal": lambda stores: stores.journal.read(RunId("run-1")),
    "wake": lambda stores: stores.runs.wake(commands.Wake()),
}


@pytest.mark.parametrize("call", ASKED)
async def test_what_is_asked_does_not_read_all_runs_where_they_were_never_analysed(belay_postgres, call):
    """The planner knows nothing of such a table, and must not guess that reading all of it is the shorter way."""
    async with belay_postgres:
        pass
    watching = await asyncpg.connect(belay_postgres.url)
    try:
        await watching.execute(FINISHED.format(rows=MANY))
        await watching.execute("SELECT pg_stat_force_next_flush()")
        before = await watching.fetchval(SCANS)
        async with open_postgres(belay_postgres.url) as stores:
            await ASKED[call](stores)
        # A connection that has ended has told the server's counts all it did.
        assert await watching.fetchval(SCANS) == before
    finally:
        await watching.close()


async def test_a_follower_at_the_head_reads_none_of_what_lies_behind(belay_postgres, raw):
    """The feed starts where the follower stands; it does not scan the journal for it."""
    async with belay_postgres as stores:
        await raw(stores, INSERT.format(rows=ROWS), *BESIDE)
        page = await stores.changes.changes_since(await source(stores), START, 1000)
        sent = []
        [engine, *_] = stores.changes._database.sync_engines

        def note(_connection, _cursor, statement, parameters, *_more):
            if "pg_snapshot_xmin" in statement and "LIMIT CAST" in statement:
                sent.append((statement, parameters))

        event.listen(engine, "before_cursor_execute", note)
        await stores.changes.changes_since(page.source, page.next_position, 1000)
        statement, parameters = sent[0]

        def explain(tx):
            tx.exec_driver_sql("SET LOCAL enable_seqscan = off")
            return tx.exec_driver_sql(PLAN["postgresql"] + statement, parameters).all()

        plan = "\n".join(str(row[-1]) for row in await stores.runs._database.write(explain))
        assert "belay_journal_feed" in plan, plan
        assert f"rows={ROWS}" not in plan.replace(".00", ""), plan
