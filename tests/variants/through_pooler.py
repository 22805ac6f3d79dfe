"""What holds behind a pooler by transaction; `make test-pooler` runs this beside the drivers' own tests."""

import asyncio
import os
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from belay_core import Context, Worker, open_stores, step, workflow
from belay_core.ids import RunId
from belay_core.records import commands
from belay_drivers.postgres import migrate_postgres, open_postgres
from tests.variants.pooled import open_straight

CLIENTS = 12
RUNS = 48
SERVERS = 3


@step(retries=0)
async def twice(number: int) -> int:
    return number * 2


@workflow("through")
async def through(ctx: Context, number: int) -> int:
    first, second = await asyncio.gather(ctx.step(twice, number), ctx.step(twice, number))
    await ctx.sleep(timedelta(milliseconds=50))
    return await ctx.step(twice, first + second)


def pooled(url: str, query: str = "?pooler=transaction") -> str:
    """The same database through the pooler."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}@{os.environ['BELAY_TEST_POOLER']}")) + query


async def test_workers_and_clients_share_a_few_servers_without_an_error(belay_postgres):
    url = pooled(belay_postgres.url)

    async def client(number):
        async with open_stores(url) as stores, Worker(stores, [through], concurrency=8) as worker:
            started = [await worker.client.start(through, n) for n in range(number, RUNS, CLIENTS)]
            results = await asyncio.gather(*(run.result() for run in started))
            assert results == [n * 8 for n in range(number, RUNS, CLIENTS)]

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    database = urlsplit(belay_postgres.url).path.strip("/")
    watching = await asyncpg.connect(belay_postgres.url)
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
    assert 1 <= await watching.fetchval(count, database) <= SERVERS
    await watching.close()


async def test_nothing_of_a_session_stays_at_the_server(belay_postgres):
    async with open_postgres(pooled(belay_postgres.url)) as stores:
        await stores.runs.start(commands.Start(RunId("r"), "w", "1", "1"))
        database = stores.runs._database  # type: ignore[attr-defined]
        settings = ("statement_timeout", "jit", "jit_above_cost", "enable_bitmapscan")

        def inside(tx):
            return [tx.exec_driver_sql(f"SHOW {name}").scalar_one() for name in settings]

        assert await database.write(inside) == ["5s", "on", "-1", "off"]
        assert await database.read(inside) == ["5s", "on", "-1", "off"]
        outside = await asyncpg.connect(pooled(belay_postgres.url, ""), statement_cache_size=0)
        for _ in range(2 * SERVERS):
            async with outside.transaction():
                assert await outside.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
                assert [await outside.fetchval(f"SHOW {name}") for name in settings] == ["0", "on", "100000", "on"]
                assert await outside.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
        await outside.close()


async def test_a_direct_connection_is_refused_by_the_pooler(belay_postgres):
    with pytest.raises(Exception, match="io"):
        async with open_straight(pooled(belay_postgres.url, "")):
            pass


async def test_migrating_goes_through_too(belay_postgres_server, belay_postgres_names):
    name = next(belay_postgres_names)
    url = pooled(belay_postgres_server.create_database(name))
    applied = await asyncio.gather(*(migrate_postgres(url) for _ in range(6)))
    assert sorted(map(len, applied))[:-1] == [0] * 5
    async with open_stores(url) as stores:
        assert await stores.runs.find(RunId("nobody")) is None
    belay_postgres_server.drop_database(name)
