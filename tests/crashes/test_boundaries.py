"""Every statement and commit is met, before and after it; a process that is gone there wrote all or nothing."""

import subprocess
import sys

import pytest

from belay_core.errors import StoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_drivers.sql.connection.engine_lookup import engines_of
from belay_testing.crashes.boundaries import Boundaries
from belay_testing.faults import FaultStores


@pytest.fixture
async def stores(belay_each_store):
    async with belay_each_store as opened:
        yield opened


def start(name):
    return commands.Start(RunId(name), "flow", "1", "null")


async def test_each_statement_and_the_commit_are_met_before_and_after(stores):
    boundaries = Boundaries()
    with boundaries.observing(engines_of(stores)):
        await stores.runs.create(RunId("run-1"), "{}")
    met = [name.split(" (")[0] for name in boundaries.names]
    begin = ["before BEGIN IMMEDIATE", "after BEGIN IMMEDIATE"] if met[0] == "before BEGIN IMMEDIATE" else []
    assert met[: len(begin)] == begin
    assert met[len(begin) :][:2] == ["before INSERT INTO belay_runs", "after INSERT INTO belay_runs"]
    assert met[-2:] == ["before COMMIT", "after COMMIT"]
    await stores.runs.create(RunId("run-2"), "{}")
    assert len(boundaries.names) == len(met), "what is sent after watching is not counted"


async def test_a_process_that_is_gone_at_a_boundary_has_written_all_or_nothing(stores):
    counting = Boundaries()
    with counting.observing(engines_of(stores)):
        await stores.runs.start(start("undisturbed"))
    for at, name in enumerate(counting.names, start=1):
        faulty = FaultStores(stores)
        boundaries = Boundaries(at=at, strike=faulty.end)
        with boundaries.observing(engines_of(stores)), pytest.raises(StoreError):
            await faulty.stores.runs.start(start(f"run-{at}"))
        assert boundaries.names == counting.names[:at]
        written = await stores.runs.find(RunId(f"run-{at}"))
        # A statement that commits by itself has done so when it has been answered.
        assert (written is not None) is (name == "after COMMIT" or name.startswith("after WITH"))
        journal = await stores.journal.read(RunId(f"run-{at}"))
        assert bool(journal) is (written is not None)


async def test_only_what_is_asked_for_is_counted(stores):
    boundaries = Boundaries(at=1, of=lambda: False)
    with boundaries.observing(engines_of(stores)):
        await stores.runs.start(start("run-1"))
    assert (boundaries.names, boundaries.gone) == ([], False)


def test_a_child_is_distinguished_by_how_it_ended(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program)], check=False, capture_output=True, text=True)
    assert done.stdout.split("\n")[:3] == ["True None None", "False [1] None", "False None ValueError: no"], done.stderr


PROGRAM = """
from belay_testing.crashes.forked_process import die, forked


async def gone():
    die()


async def told():
    return [1]


async def broken():
    raise ValueError("no")


for work in (gone, told, broken):
    ended = forked(work)
    print(ended.killed, ended.value, ended.trouble)
"""
