"""A database of each kind, by its URL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from belay_testing.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/belay.db"
        return
    server: PostgresServer = request.getfixturevalue("belay_postgres_server")
    template: str = request.getfixturevalue("belay_postgres_template")
    name = next(request.getfixturevalue("belay_postgres_names"))
    yield server.create_database(name, template=template)
    server.drop_database(name)
