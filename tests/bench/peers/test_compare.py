"""Rounds are really run: programs in processes of their own on a real server, each on ground of its own."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.peers.compare import Comparison
from tests.bench.peers.entries import Entry, Ground
from tests.bench.peers.figures import summed
from tests.bench.peers.machine import disk_sync
from tests.bench.peers.restate_server import LOCK
from tests.bench.server import started

LOOP = ("--concurrency", "8", "--steps", "10")
OWN = Entry("belay_pg_50", "belay", Ground.SCHEMA, "tests.bench.loop", LOOP, 0.2, 0.1)
AGAIN = Entry("belay_pg_50_analysed", "belay", Ground.ANALYSED, "tests.bench.loop", LOOP, 0.2, 0.1)
FLOOR = Entry("floor_pg_8", "floor", Ground.DATABASE, "tests.bench.floor", ("--connections", "8"), 0.2, 0.1)
FILE = Entry("floor_sqlite", "floor", Ground.FILE, "tests.bench.floor", (), 0.2, 0.1)
ABSENT = Entry("absent_1", "absent", Ground.DATABASE, "tests.bench.peers.absent_program", ())


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    with started() as server:
        yield Comparison(server, tmp_path_factory.mktemp("files"))


def test_a_round_measures_what_can_be_and_tells_why_the_rest_could_not(
    comparison: Comparison, capsys: pytest.CaptureFixture[str]
):
    comparison.round([[ABSENT, OWN, AGAIN, FLOOR], [FILE]])
    [first] = comparison.rounds
    assert list(first) == ["belay_pg_50", "belay_pg_50_analysed", "floor_pg_8", "floor_sqlite"]
    assert list(comparison.missing) == ["absent_1"]
    assert re.search(r"absent_program|\.venv-peers", comparison.missing["absent_1"])
    figures = summed(comparison.rounds)
    ratio = first["belay_pg_50"]["steps_per_s"] / first["floor_pg_8"]["commits_per_s"]
    assert figures["pg_50_over_asyncpg_8"] == pytest.approx(ratio, abs=0.001)
    assert "not measured" in capsys.readouterr().out

    comparison.round([[ABSENT, FLOOR], [FILE]])
    assert list(comparison.rounds[1]) == ["floor_sqlite", "floor_pg_8"], "every second round goes the other way"


def test_a_disk_takes_its_time_to_sync(tmp_path: Path):
    assert 0 < disk_sync(tmp_path) < 1


def test_the_lock_of_restates_server_has_a_hash_for_every_machine_and_no_address():
    lines = [line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    machines = {name.removeprefix("@restatedev/restate-server-") for name, _, _ in lines}
    assert machines == {f"{system}-{machine}" for system in ("darwin", "linux") for machine in ("arm64", "x64")}
    assert len({version for _, version, _ in lines}) == 1
    for _, _, integrity in lines:
        assert len(base64.b64decode(integrity.removeprefix("sha512-"), validate=True)) == 64
