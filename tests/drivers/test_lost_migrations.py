"""A migration whose commit gets no reply is told as applied by the call that applied it, and by no other."""

import asyncpg
import pytest

from belay_drivers.postgres import migrate_postgres
from belay_drivers.postgres.open import OWN
from belay_drivers.sql.schema.migration_plan import MigrationSet, planned
from tests.drivers.test_lost_replies import COMMIT, Proxy

ALL = [(step.id, step.name) for step in planned([OWN])]
MORE = MigrationSet("more", 5_000, {"0000_more": "CREATE TABLE more (id BIGINT)"})


@pytest.fixture
async def cut(belay_postgres_server, belay_postgres_names, monkeypatch):
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.001)
    name = next(belay_postgres_names)
    proxy = Proxy(belay_postgres_server.create_database(name))
    async with proxy.running() as url:
        yield proxy, url
    belay_postgres_server.drop_database(name)


async def ledger(proxy):
    connection = await asyncpg.connect(proxy.server.geturl())
    try:
        return [tuple(row) for row in await connection.fetch("SELECT migration_id, name FROM belay_migrations")]
    finally:
        await connection.close()


@pytest.mark.parametrize("lose", ["request", "reply", "both"])
async def test_what_a_call_applied_is_reported_though_no_reply_came_to_its_commit(cut, lose):
    proxy, url = cut
    proxy.arm(lose, *COMMIT)
    assert await migrate_postgres(url) == ALL
    assert proxy.cuts == 1
    assert await ledger(proxy) == ALL
    proxy.arm(lose, *COMMIT)
    assert await migrate_postgres(url, [MORE]) == [(5_000, "more_more")]
    assert await migrate_postgres(url, [MORE]) == []


async def test_what_others_applied_is_not_reported_by_a_call_that_found_nothing_to_do(cut, monkeypatch):
    """At the same moment, too."""
    proxy, url = cut
    monkeypatch.setattr("belay_drivers.postgres.open.reading", lambda _clock: 1_700_000_000_000)
    assert await migrate_postgres(url) == ALL
    proxy.arm("reply", *COMMIT)
    assert await migrate_postgres(url) == []
    assert proxy.cuts == 1
