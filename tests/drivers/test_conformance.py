"""Each of belay's drivers keeps the contract."""

from contextlib import asynccontextmanager
from functools import partial

import asyncpg
import pytest
from opentelemetry.sdk.trace import TracerProvider

from belay_core.telemetry import observed
from belay_drivers.postgres import open_postgres
from belay_drivers.sql.schema import tables
from belay_drivers.sqlite import open_sqlite
from belay_testing.conformance import (
    EngineAuxiliaryConformance,
    EngineConformance,
    Harness,
    ProcessConformance,
    SchemaConformance,
    SharedAuxiliaryConformance,
    StoreConformance,
)
from belay_testing.postgres_server import run_apart
from tests.drivers.dictionary import open_dictionary
from tests.drivers.dictionary_shelf import Shelf
from tests.drivers.tampering import SqlTamper

PROVIDER = TracerProvider()


def observing(opener):
    """The same stores, watched."""

    @asynccontextmanager
    async def opened(**given):
        async with opener(**given) as stores:
            yield observed(stores, tracer_provider=PROVIDER)

    return opened


EMPTY = "TRUNCATE {} RESTART IDENTITY CASCADE".format(
    ", ".join(
        table.name for table in tables.metadata.sorted_tables if table.name not in {"belay_store", "belay_migrations"}
    )
)


@pytest.fixture(scope="session")
def used_database(belay_postgres_server, belay_postgres_template, belay_postgres_names):
    """A database that tests use one after the other: emptying it costs less than making one."""
    name = next(belay_postgres_names)
    yield belay_postgres_server.create_database(name, template=belay_postgres_template)
    belay_postgres_server.drop_database(name)


@pytest.fixture
def open_empty_postgres(request):
    """Opens a database that was empty when the test began; one of its own where the test tampers with the schema."""
    if "tamper" in request.fixturenames:
        return partial(open_postgres, request.getfixturevalue("belay_postgres").url)
    url = request.getfixturevalue("used_database")
    run_apart(empty(url))
    return partial(open_postgres, url)


async def empty(url):
    """As the database's owner, whoever the stores are."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(EMPTY)
    finally:
        await connection.close()


class TestMemory(StoreConformance, EngineConformance, EngineAuxiliaryConformance, SchemaConformance):
    driver = "sqlite in memory"

    @pytest.fixture
    def harness(self):
        return Harness(partial(open_sqlite, ":memory:"), tamper=SqlTamper)


@pytest.mark.thorough
class TestFile(
    StoreConformance,
    EngineConformance,
    EngineAuxiliaryConformance,
    SchemaConformance,
    ProcessConformance,
    SharedAuxiliaryConformance,
):
    driver = "sqlite in a file"

    @pytest.fixture
    def harness(self, tmp_path):
        return Harness(partial(open_sqlite, tmp_path / "belay.db"), tamper=SqlTamper)


class TestPostgres(
    StoreConformance,
    EngineConformance,
    EngineAuxiliaryConformance,
    SchemaConformance,
    ProcessConformance,
    SharedAuxiliaryConformance,
):
    driver = "postgresql"

    @pytest.fixture
    def harness(self, open_empty_postgres):
        return Harness(open_empty_postgres, tamper=SqlTamper)


class TestDictionary(StoreConformance):
    driver = "dictionary"

    @pytest.fixture
    def harness(self):
        return Harness(partial(open_dictionary, Shelf()))


@pytest.mark.thorough
class TestObservedMemory(StoreConformance, EngineConformance, EngineAuxiliaryConformance):
    driver = "sqlite in memory, observed"
    most_histories = 2

    @pytest.fixture
    def harness(self):
        return Harness(observing(partial(open_sqlite, ":memory:")))


@pytest.mark.thorough
class TestObservedPostgres(StoreConformance, EngineConformance, EngineAuxiliaryConformance):
    driver = "postgresql, observed"
    most_histories = 2

    @pytest.fixture
    def harness(self, open_empty_postgres):
        return Harness(observing(open_empty_postgres))
