"""A pytest plugin (``-p tests.variants.least_rights``): PostgreSQL is used by the worker role.

Roles belong to the whole server, rights to each database; a copy of a database has its rights.
"""

from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

import belay_drivers.postgres as driver
from belay_drivers.postgres import open as driver_open
from belay_drivers.postgres.roles import WORKER, grants

HARMFUL = {"loosen", "place", "raw", "tamper"}
"""Fixtures of tests that change the schema, or what nobody may change."""

open_as_owner = driver_open.open_postgres
migrate_as_owner = driver_open.migrate_postgres


def as_role(url: str, role: str = WORKER) -> str:
    """The same database, entered as another."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


async def give_rights(url):
    """The roles, with their rights on this database."""
    connection = await asyncpg.connect(url)
    try:
        # Roles belong to all databases of the server: another test may be giving them theirs, and one of the two fails.
        while not await _gave(connection):
            continue
    finally:
        await connection.close()


async def _gave(connection):
    try:
        await connection.execute(grants())
    except asyncpg.InternalServerError as error:
        if str(error) != "tuple concurrently updated":
            raise
        return False
    return True


def open_as_worker(url, **given):
    """The stores, opened with no more rights than a worker needs."""
    return open_as_owner(as_role(url), **given)


async def migrate_and_give(url, *given, **more):
    """What migrating applied; then the rights are given."""
    applied = await migrate_as_owner(url, *given, **more)
    await give_rights(url)
    return applied


def pytest_collection_modifyitems(config: pytest.Config, items: "list[pytest.Item]") -> None:
    """Leaves out what does damage first, for which it needs the rights of the owner."""
    harmful = [item for item in items if HARMFUL & set(getattr(item, "fixturenames", ()))]
    items[:] = [item for item in items if item not in harmful]
    config.hook.pytest_deselected(items=harmful)


def pytest_configure() -> None:
    driver.open_postgres = driver_open.open_postgres = open_as_worker
    driver.migrate_postgres = driver_open.migrate_postgres = migrate_and_give
