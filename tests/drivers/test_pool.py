"""A pool whose connections are all in use: waited for shortly, tried again, told as busy, and never for minutes."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import NullPool

from belay_core.errors import RunStoreError, WriterError
from belay_core.ids import RunId
from belay_drivers.postgres import connections
from belay_drivers.sql.connection.database import ATTEMPTS

RUN = RunId("run")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.001)
    monkeypatch.setattr(connections, "POOL_TIMEOUT", 0.02)


async def holding_all(stores, stack):
    """Every connection of the pool, each held by reads of one moment."""
    for _ in range(connections.POOL_SIZE):
        reads = await stack.enter_async_context(stores.snapshot())
        await reads.get(RUN)


@pytest.mark.usefixtures("impatient")
async def test_an_operation_that_finds_no_connection_is_reported_after_its_tries(belay_postgres):
    async with belay_postgres as stores:
        await stores.runs.create(RUN, "{}")
        async with AsyncExitStack() as stack:
            await holding_all(stores, stack)
            pool = stores.runs._database.sync_engines[0].pool
            asked, connect = [], pool._do_get

            def counted():
                asked.append(1)
                return connect()

            pool._do_get = counted
            async with asyncio.timeout(5):
                for call, error in (
                    (lambda: stores.runs.get(RUN), RunStoreError),
                    (lambda: stores.runs.request_cancel(RUN, 1), RunStoreError),
                    (lambda: stores.write(lambda inside: inside.runs.get(RUN)), WriterError),
                ):
                    asked.clear()
                    with pytest.raises(error) as failure:
                        await call()
                    assert failure.value.code == "persistence_failed"
                    assert (dict(failure.value.cause or {})["category"], len(asked)) == ("busy", ATTEMPTS)
            async with stores.snapshot() as reads:
                with pytest.raises(RunStoreError) as failure:
                    await reads.get(RUN)
                assert (failure.value.code, failure.value.method) == ("persistence_failed", "get")
        assert (await stores.runs.get(RUN)).cancel_requested_at_ms is None


@pytest.mark.usefixtures("impatient")
async def test_a_connection_that_is_given_back_meanwhile_is_taken(belay_postgres):
    async with belay_postgres as stores:
        await stores.runs.create(RUN, "{}")
        async with AsyncExitStack() as stack:
            await holding_all(stores, stack)
            read = asyncio.ensure_future(stores.runs.get(RUN))
            tries = []
            stores.writer.on_retry(lambda: tries.append(1))
            write = asyncio.ensure_future(stores.runs.request_cancel(RUN, 1))
            while not tries:
                await asyncio.sleep(0)
            assert not read.done()
        assert (await read).run_id == RUN
        await write
        assert (await stores.runs.get(RUN)).cancel_requested_at_ms == 1


async def test_no_try_waits_longer_than_a_statement_may_take(belay_postgres):
    async with belay_postgres as stores:
        pools = [engine.pool for engine in stores.runs._database.sync_engines]
        assert {pool._timeout for pool in pools if not isinstance(pool, NullPool)} == {5.0}
