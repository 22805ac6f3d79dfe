"""Releases beside each other on one database: an older one runs on while a newer one expands the schema."""

import asyncio
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from belay_core.stores import find_migrations

ROOT = Path(__file__).parents[2]
PACKAGES = ("belay_core", "belay_drivers", "belay_testing")
RELEASE = "3565031"
"""The code that stands for the last release, until there is one."""
KNOWN_TO_RELEASE = 1
"""The newest migration it knows."""
PROGRAM = Path(__file__).with_name("run_one.py")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'belay.db'}"
        return
    server = request.getfixturevalue("belay_postgres_server")
    name = next(request.getfixturevalue("belay_postgres_names"))
    yield server.create_database(name)
    server.drop_database(name)


def run(home, *command):
    """The end of a program that sees the code in ``home``."""
    environment = os.environ | {"PYTHONPATH": str(home), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *map(str, command)], env=environment, cwd=home, capture_output=True, text=True, check=False
    )


def works(home, url):
    ended = run(home, PROGRAM, home, url)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done\n"


def refuses(home, url):
    ended = run(home, PROGRAM, home, url)
    return ended.returncode != 0 and "SchemaMismatch" in ended.stderr


def migrates(home, url):
    ended = run(home, "-m", "belay_core.cli", "migrate", "--database", url)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def execute(url, statement, **given):
    async def work():
        spelled = url.replace("postgresql://", "postgresql+asyncpg://").replace("sqlite://", "sqlite+aiosqlite://")
        engine = create_async_engine(spelled)
        async with engine.begin() as connection:
            await connection.execute(sa.text(statement), given)
        await engine.dispose()

    asyncio.run(work())


def last_release(folder):
    """The code of the last release, from the history."""
    packed = subprocess.run(["git", "archive", RELEASE, *PACKAGES], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.fail(
            f"The code of the last release ({RELEASE}) comes from the history, which is not here: clone all of it."
        )
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def coming_release(folder, base, name, sql):
    """A release after ``base``, with one more migration on each database."""
    for package in PACKAGES:
        shutil.copytree(base / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for driver in ("sqlite", "postgres"):
        migrations = folder / "belay_drivers" / driver / "migrations"
        number = max(int(file.name[:4]) for file in migrations.glob("*.sql")) + 1
        (migrations / f"{number:04d}_{name.format(last=number - 1)}.sql").write_text(sql)
    return folder


def test_the_last_releases_code_works_on_todays_schema(tmp_path, url):
    home = last_release(tmp_path / "last")
    asyncio.run(find_migrations(url).migrate(url))
    # That release refused every migration it did not know, so that it is not shown those it cannot have known.
    execute(url, "DELETE FROM belay_migrations WHERE migration_id > :known", known=KNOWN_TO_RELEASE)
    works(home, url)


def test_todays_code_works_beside_a_coming_release_until_that_takes_something_away(tmp_path, url):
    expand = "ALTER TABLE belay_runs ADD COLUMN later TEXT;\n\nCREATE INDEX belay_runs_later ON belay_runs (later);\n"
    expanded = coming_release(tmp_path / "expanded", ROOT, "later", expand)
    assert "later" in migrates(expanded, url)
    works(ROOT, url)
    works(expanded, url)
    assert migrates(ROOT, url) == "the schema is up to date\n"
    contract = "ALTER TABLE belay_run_values DROP COLUMN codec;\n"
    contracted = coming_release(tmp_path / "contracted", expanded, "contract_{last:04d}_codec", contract)
    migrates(contracted, url)
    assert refuses(ROOT, url)
    assert not refuses(expanded, url)
