"""The stores beside runs and attempts: a failing database is told by its kind alone, and every write locks the run."""

import re
import traceback

import pytest
from sqlalchemy import event

from belay_core.errors import BelayError, DatabaseError, StoreError
from belay_core.ids import RunId
from belay_core.records.changes import START, RunFilters
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.waiting import Wait

CANARY = "tweet-tweet-4711"
RUN = RunId(CANARY)
A = OwnerId(CANARY, 101, CANARY)

CALLS = {
    "WaitingStore.park": lambda stores: stores.waiting.park(RUN, Wait(CANARY, 1, CANARY, {CANARY: CANARY}), A),
    "WaitingStore.wake": lambda stores: stores.waiting.wake(RUN),
    "WaitingStore.waiting": lambda stores: stores.waiting.waiting(RUN),
    "WaitingStore.waiting_runs": lambda stores: stores.waiting.waiting_runs(CANARY),
    "Journal.append": lambda stores: stores.journal.append(RUN, A, CANARY, {CANARY: CANARY}),
    "Journal.read": lambda stores: stores.journal.read(RUN),
    "Journal.ownership": lambda stores: stores.journal.ownership(RUN),
    "Changes.current": lambda stores: stores.changes.current(),
    "Changes.changes_since": lambda stores: stores.changes.changes_since("0" * 32, START),
    "Changes.snapshot": lambda stores: stores.changes.snapshot([RUN]),
    "Changes.list_runs": lambda stores: stores.changes.list_runs(RunFilters(workflow=CANARY)),
    "Changes.cancellation": lambda stores: stores.changes.cancellation(RUN),
    "Retention.delete": lambda stores: stores.retention.delete(RUN),
}
GONE = ("belay_run_values", "belay_attempts", "belay_approvals", "belay_journal", "belay_runs", "belay_store")


def reported(error):
    """Everything a handler of this error could print, without looking into frames."""
    seen, link = [*traceback.format_exception(error)], error
    while link is not None:
        seen += [str(link), repr(link), repr(vars(link))]
        link = link.__cause__ or link.__context__
    return "\n".join(seen)


@pytest.mark.parametrize("name", CALLS)
async def test_a_defect_repeats_nothing_of_what_was_sent(belay_each_store, raw, name):
    async with belay_each_store as stores:
        await raw(stores, *(f"ALTER TABLE {table} RENAME TO gone_{table}" for table in GONE))
        with pytest.raises(StoreError) as failed:
            await CALLS[name](stores)
    error = failed.value
    assert isinstance(error, BelayError)
    assert str(error) == f"persistence_failed: {name}: database operation failed"
    assert error.cause is not None
    assert isinstance(error.cause["cause"], DatabaseError)
    assert CANARY not in reported(error).replace(__file__, "")
    assert "gone" not in str(error)


LOCKS = re.compile(r"^(UPDATE belay_runs\b|SELECT .*FROM belay_runs\b.* FOR (NO KEY )?UPDATE)", re.DOTALL)
CHILD = re.compile(r"^(INSERT INTO|UPDATE|DELETE FROM) belay_(attempts|approvals|journal|run_values)\b")


async def test_every_write_locks_the_run_before_what_belongs_to_it(belay_postgres):
    async with belay_postgres as stores:
        await stores.runs.create(RUN, "{}")
        await stores.runs.claim_and_own(RUN, RunSnapshot(RunStatus.PENDING), A, int(stores.clock.now()))
        transactions: list[list[str]] = []
        [engine, *_] = stores.runs._database.sync_engines
        event.listen(engine, "begin", lambda _connection: transactions.append([]))
        event.listen(engine, "before_cursor_execute", lambda *sent: transactions[-1].append(sent[2]))
        for name in ("WaitingStore.park", "WaitingStore.wake", "Journal.append"):
            await CALLS[name](stores)
        await stores.runs.request_cancel(RUN, 1)
        await stores.runs.acknowledge_cancel(RUN, A, 2)
        await stores.runs.transition_owned(RUN, A, RunStatus.RUNNING, "[]")
        await stores.runs.transition_owned(RUN, A, RunStatus.COMPLETED)
        for name in ("Retention.delete", "WaitingStore.wake"):
            await CALLS[name](stores)
    written = 0
    for statements in transactions:
        locked = False
        for statement in statements:
            locked = locked or LOCKS.match(statement.lstrip()) is not None
            if CHILD.match(statement.lstrip()):
                written += 1
                assert locked, statements
    assert written >= 12
