"""Fixtures for tests of workflows, opted into by ``pytest_plugins = ["belay_testing.plugin"]``.

All of them are plain functions, so they work under every asyncio plugin and mode: what needs an event loop
is a handle that the test opens with ``async with`` in its own. The module itself imports nothing but pytest
and the standard library; a fixture imports what it needs when a test asks for it.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from belay_testing.cancels.helper import Cancels
    from belay_testing.clock import ManualClock
    from belay_testing.crashes.helper import Crashes
    from belay_testing.handles import StoresHandle, WorkerFactory
    from belay_testing.ids import SequentialIds
    from belay_testing.jitter import FixedJitter
    from belay_testing.postgres_server import PostgresServer
    from belay_testing.postgres_watchdog import Lifeline

pytest_plugins = ["belay_testing.report"]
pytest.register_assert_rewrite("belay_testing.conformance")

_HOME = "belay_postgres_home"
_LIFELINE: "pytest.StashKey[Lifeline]" = pytest.StashKey()


class XdistNode(Protocol):
    """The part of an xdist worker, as its controller sees it, that is used here."""

    config: pytest.Config
    workerinput: dict[str, Any]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: XdistNode) -> None:
    """Give every worker of this run one folder: the first that needs PostgreSQL starts it there."""
    from belay_testing.postgres_watchdog import Lifeline

    if _LIFELINE not in node.config.stash:
        node.config.stash[_LIFELINE] = Lifeline(in_memory=True)
    node.workerinput[_HOME] = str(node.config.stash[_LIFELINE].folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the workers' server."""
    lifeline = config.stash.get(_LIFELINE, None)
    if lifeline is not None:
        lifeline.close()


@pytest.fixture
def belay_clock() -> "ManualClock":
    """A clock that only the test advances."""
    from belay_testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def belay_ids() -> "SequentialIds":
    """Ids that count up, the same in every run of the test."""
    from belay_testing.ids import SequentialIds

    return SequentialIds()


@pytest.fixture
def belay_jitter() -> "FixedJitter":
    """Jitter that always draws the same number."""
    from belay_testing.jitter import FixedJitter

    return FixedJitter()


@pytest.fixture
def belay_stores(belay_clock: "ManualClock", belay_ids: "SequentialIds") -> "StoresHandle":
    """Stores in memory: every ``async with`` gives an empty database with the schema applied."""
    from belay_drivers.sqlite import open_sqlite
    from belay_testing.handles import StoresHandle

    opener = partial(open_sqlite, ":memory:", clock=belay_clock, ids=belay_ids)
    return StoresHandle("sqlite:///:memory:", opener)


@pytest.fixture
def belay_sqlite_file(tmp_path: Path, belay_clock: "ManualClock", belay_ids: "SequentialIds") -> "StoresHandle":
    """Stores in a file of the test's own folder, which may be closed and opened again."""
    from belay_drivers.sqlite import open_sqlite
    from belay_testing.handles import StoresHandle

    path = tmp_path / "belay.db"
    opener = partial(open_sqlite, str(path), clock=belay_clock, ids=belay_ids)
    return StoresHandle(f"sqlite:///{path}", opener)


@pytest.fixture(scope="session")
def belay_postgres_server(request: pytest.FixtureRequest) -> "Iterator[PostgresServer]":
    """The server of this test run, started when the first test needs it.

    On a machine without PostgreSQL these tests fail with a message that says what to install; they are not skipped.
    """
    from belay_testing.postgres_server import PostgresServer

    home = getattr(request.config, "workerinput", {}).get(_HOME)
    with PostgresServer(home=Path(home) if home else None) as server:
        yield server


@pytest.fixture(scope="session")
def belay_postgres_names() -> Iterator[str]:
    """Names for databases that no other run on the same server uses."""
    from belay_core.ids import Uuid7Ids

    run = Uuid7Ids().nonce()
    return (f"belay_{run}_{number}" for number in count())


@pytest.fixture(scope="session")
def belay_postgres_template(
    belay_postgres_server: "PostgresServer", belay_postgres_names: Iterator[str]
) -> Iterator[str]:
    """The name of a database with the schema applied, to be copied."""
    from belay_drivers.postgres import migrate_postgres
    from belay_testing.postgres_server import run_apart

    name = next(belay_postgres_names)
    run_apart(migrate_postgres(belay_postgres_server.create_database(name)))
    yield name
    belay_postgres_server.drop_database(name)


@pytest.fixture
def belay_postgres(
    belay_postgres_server: "PostgresServer",
    belay_postgres_template: str,
    belay_postgres_names: Iterator[str],
    belay_clock: "ManualClock",
    belay_ids: "SequentialIds",
) -> "Iterator[StoresHandle]":
    """Stores in a fresh database on a real PostgreSQL server, the schema applied."""
    from belay_drivers.postgres import open_postgres
    from belay_testing.handles import StoresHandle

    name = next(belay_postgres_names)
    url = belay_postgres_server.create_database(name, template=belay_postgres_template)
    yield StoresHandle(url, partial(open_postgres, url, clock=belay_clock, ids=belay_ids))
    belay_postgres_server.drop_database(name)


_EACH = {"memory": "belay_stores", "file": "belay_sqlite_file", "postgres": "belay_postgres"}


@pytest.fixture(params=sorted(_EACH))
def belay_each_store(request: pytest.FixtureRequest) -> "StoresHandle":
    """The test runs once on each kind of store: in memory, in a file, on PostgreSQL."""
    handle: StoresHandle = request.getfixturevalue(_EACH[request.param])
    return handle


@pytest.fixture
def belay_worker(belay_stores: "StoresHandle") -> "WorkerFactory":
    """Makes workers without background tasks, to be entered with ``async with`` and driven by ``run_ready``."""
    from belay_testing.handles import WorkerFactory

    return WorkerFactory(belay_stores)


@pytest.fixture
def belay_cancels(belay_stores: "StoresHandle", belay_clock: "ManualClock") -> "Cancels":
    """Cancels a workflow's worker at its awaits; to be awaited with the workflow and its input."""
    from belay_testing.cancels.helper import Cancels

    return Cancels(belay_stores, belay_clock)


@pytest.fixture
def belay_crashes(belay_stores: "StoresHandle", belay_clock: "ManualClock") -> "Crashes":
    """Kills a workflow's worker at every call of its stores; to be awaited with the workflow and its input."""
    from belay_testing.crashes.helper import Crashes

    return Crashes(belay_stores, belay_clock)
