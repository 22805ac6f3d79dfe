"""A kit to make runs, leases and records by hand, over each kind of store."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from belay_core.stores import Stores
from belay_testing.clock import ManualClock
from belay_testing.conformance.kit import Kit
from belay_testing.handles import StoresHandle


@pytest.fixture
async def kit(belay_each_store: StoresHandle, belay_clock: ManualClock) -> AsyncIterator[Kit]:
    """A kit over each kind of store in turn."""
    async with belay_each_store as stores:
        yield Kit(stores, belay_clock)


@pytest.fixture(params=["file", "postgres"])
def shared_store(request: pytest.FixtureRequest) -> StoresHandle:
    """A store that several openings share, as several processes do."""
    names = {"file": "belay_sqlite_file", "postgres": "belay_postgres"}
    handle: StoresHandle = request.getfixturevalue(names[request.param])
    return handle


@pytest.fixture
def make_kit(belay_clock: ManualClock) -> type[Kit] | Any:
    """Makes a kit over stores the test has opened itself."""
    return lambda stores: Kit(stores, belay_clock)


async def _raw(stores: Stores, *statements: str) -> None:
    """Run statements as an intruder would, past every check of the store."""

    def run(tx: Any) -> None:
        for statement in statements:
            tx.exec_driver_sql(statement)

    await stores.runs._database.write(run)  # type: ignore[attr-defined]


@pytest.fixture
def raw() -> Any:
    """Raw SQL against the stores' database."""
    return _raw


@pytest.fixture
def loosen() -> Any:
    """Takes the checks off a table, so that damage can be done to it."""

    async def loosen(stores: Stores, table: str) -> None:
        database = stores.runs._database  # type: ignore[attr-defined]
        if database.dialect.name == "sqlite":
            await _raw(stores, "PRAGMA ignore_check_constraints = ON")
            return

        def drop(tx: Any) -> None:
            query = f"SELECT conname FROM pg_constraint WHERE conrelid = '{table}'::regclass AND contype = 'c'"  # noqa: S608
            for name in tx.exec_driver_sql(query).scalars().all():
                tx.exec_driver_sql(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
            tx.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")

        await database.write(drop)

    return loosen
