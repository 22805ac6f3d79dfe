"""Belay's writes in a transaction of the caller's: they go with its commit, and with its rollback."""

from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from belay_core import Client, Context, Worker, workflow
from belay_core.errors import InvalidInput, RunStoreError, WriterError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores.run_contract import CancelRequested, NotFound
from belay_testing.drive import run_ready
from belay_testing.spans import recorded_spans

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
ONE, TWO = RunId("one"), RunId("two")
A = OwnerId("h", 1, "n")


class Unhappy(Exception):
    pass


@workflow("refund")
async def refund(_ctx: Context, order: int) -> int:
    return order * 2


@workflow("asking")
async def asking(ctx: Context, order: int) -> str:
    return type(await ctx.gate("editor", subject=order)).__name__


@asynccontextmanager
async def engine_of(handle: Any, **options: Any):
    url = make_url(handle.url)
    engine = create_async_engine(url.set(drivername=DRIVERS[url.drivername]), **options)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE IF NOT EXISTS orders (id BIGINT)"))
        yield engine
    finally:
        await engine.dispose()


async def orders(engine: Any) -> int:
    async with engine.connect() as connection:
        return len((await connection.execute(text("SELECT * FROM orders"))).all())


async def insert(connection: Any) -> None:
    await connection.execute(text("INSERT INTO orders VALUES (1)"))


async def exists(stores: Any, run_id: str) -> bool:
    return bool(await stores.runs.lineage(RunId(run_id)))


@pytest.mark.parametrize("first", ["belay", "caller"])
async def test_a_run_is_born_with_the_callers_commit_or_not_at_all(shared_store, first):
    """Whichever writes first: a driver may begin no transaction before its caller's first change."""
    async with shared_store as stores, engine_of(shared_store) as engine:
        client = Client(stores)

        async def both(connection):
            if first == "caller":
                await insert(connection)
            run = await client.within(connection).start(refund, 4, idempotency_key="order-1")
            if first == "belay":
                await insert(connection)
            return run

        async def broken_off():
            async with engine.begin() as connection:
                await both(connection)
                raise Unhappy

        with pytest.raises(Unhappy):
            await broken_off()
        assert (await orders(engine), await client.list()) == (0, ())

        async with engine.begin() as connection:
            run = await both(connection)
            assert await client.list() == ()
        assert await orders(engine) == 1
        async with Worker(stores, [refund]):
            assert await run.result() == 8


async def test_a_connection_that_was_not_begun_is_the_callers_to_commit(shared_store):
    async with shared_store as stores, engine_of(shared_store) as engine:
        async with engine.connect() as connection:
            await stores.within(connection).runs.create(ONE, "{}")
            await connection.rollback()
            await stores.within(connection).runs.create(TWO, "{}")
            await connection.commit()
        assert [await exists(stores, run_id) for run_id in (ONE, TWO)] == [False, True]


async def test_a_refusal_or_a_failure_leaves_the_callers_transaction_usable(shared_store):
    async with shared_store as stores, engine_of(shared_store) as engine:
        await stores.runs.create(ONE, "{}")
        async with engine.begin() as connection:
            await insert(connection)
            inside = stores.within(connection)
            with pytest.raises(RunStoreError) as failure:
                await inside.runs.create(ONE, "{}")
            assert failure.value.code == "constraint"
            assert await inside.runs.request_cancel(TWO, 1) == NotFound()
            await inside.runs.create(TWO, "{}")
            assert (await inside.runs.get(TWO)).status is RunStatus.PENDING
        assert await orders(engine) == 1
        assert await exists(stores, TWO)


async def test_a_cancel_request_and_a_decision_go_with_the_callers_commit(shared_store):
    async with shared_store as stores, engine_of(shared_store) as engine:
        client = Client(stores, approver="ada")
        run = await client.start(asking, 1)
        async with Worker(stores, [asking], background=False) as worker:
            await run_ready(worker)
            [approval] = await client.approvals(run)
            for keep in (False, True):
                async with engine.connect() as connection:
                    joined = client.within(connection)
                    await joined.approve(run)
                    assert await client.approvals(run) == (approval,)
                    await (connection.commit() if keep else connection.rollback())
            assert await client.approvals(run) == ()
            await run_ready(worker)
        assert await run.result() == "Approved"

        other = await client.start(refund, 1)
        async with engine.connect() as connection:
            assert isinstance(await client.within(connection).cancel(other), CancelRequested)
        assert (await client.get(other)).cancel_requested_at_ms is None


async def test_the_same_key_finds_the_run_there_is(shared_store):
    async with shared_store as stores, engine_of(shared_store) as engine:
        client = Client(stores)
        first = await client.start(refund, 1, idempotency_key="k")
        async with engine.begin() as connection:
            again = await client.within(connection).start(refund, 1, idempotency_key="k")
        assert (again.run_id, again.created) == (first.run_id, False)


async def test_what_needs_a_transaction_of_belays_own_is_refused(shared_store):
    async with shared_store as stores, engine_of(shared_store) as engine, engine.begin() as connection:
        inside = stores.within(connection)
        for call in (
            lambda: inside.runs.claim_and_own(ONE, RunSnapshot(RunStatus.PENDING), A, 0),
            lambda: inside.runs.transition_owned(ONE, A, RunStatus.COMPLETED),
            lambda: inside.runs.heartbeat(ONE, A, 0),
            lambda: inside.write(lambda deeper: deeper.runs.get(ONE)),
            lambda: inside.runs.list(commands.ListRuns()),
        ):
            with pytest.raises(WriterError) as failure:
                await call()
            assert failure.value.code == "unsupported"
        assert inside.after_commit(lambda: None) is False


async def test_only_a_connection_to_such_a_database_is_taken(shared_store, belay_stores):
    async with shared_store as stores, belay_stores as memory, engine_of(shared_store) as engine:
        for wrong in (None, engine, "connection"):
            with pytest.raises(InvalidInput, match="connection"):
                stores.within(wrong)
        async with engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                with pytest.raises(InvalidInput, match="same kind of database"):
                    memory.within(connection)


async def test_it_is_watched_like_any_other(shared_store):
    async with shared_store as stores, engine_of(shared_store) as engine:
        with recorded_spans() as spans:
            async with engine.begin() as connection:
                await Client(stores).within(connection).start(refund, 1)
        assert [span.name for span in spans] == ["belay.run_store.start", "start refund"]
