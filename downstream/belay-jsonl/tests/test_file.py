"""What the file withstands: other processes, kills, full disks, damage."""

import asyncio
import fcntl
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from belay_core import SchemaMismatch, open_stores
from belay_core.errors import AttemptStoreError, DatabaseError, DriverNotFound, InvalidInput, RunStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import AttemptId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores import Stores
from belay_core.stores.run_contract import Activated, HeartbeatFresh, Updated

pytestmark = pytest.mark.asyncio

PENDING = RunSnapshot(RunStatus.PENDING)
A = OwnerId("host", 1, "a")
R = RunId("run-1")
CREATES = """
import asyncio, sys
from belay_core import open_stores
from belay_core.ids import RunId

async def main():
    async with open_stores(sys.argv[1]) as stores:
        for number in range(10_000):
            await stores.runs.create(RunId(f"{sys.argv[2]}-{number}"), "{}")
            print(number, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


@pytest.fixture
def url(path: Path) -> str:
    return f"jsonl:///{path}"


async def own(stores: Stores, run_id: RunId = R, owner: OwnerId = A) -> None:
    await stores.runs.create(run_id, "{}")
    now = int(stores.clock.now())
    assert await stores.runs.claim_and_own(run_id, PENDING, owner, now) == Activated()


async def test_it_is_found_by_its_url(url: str) -> None:
    async with open_stores(url) as stores:
        await own(stores)
        with pytest.raises(DriverNotFound):
            open_stores(url.replace("jsonl", "jsonlines"))


@pytest.mark.parametrize("url", ["jsonl:///", "jsonl://runs.jsonl", "jsonl:///runs.jsonl?fast=1"])
async def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        async with open_stores(url):
            pass


async def test_what_was_answered_outlives_the_opening(url: str) -> None:
    async with open_stores(url) as stores:
        await own(stores)
        row = await stores.runs.get(R)
    async with open_stores(url) as stores:
        assert await stores.runs.get(R) == row


async def test_of_rivals_over_several_openings_one_wins(url: str) -> None:
    async with open_stores(url) as one, open_stores(url) as other:
        now = int(one.clock.now())
        for number in range(20):
            run_id = RunId(f"run-{number}")
            await one.runs.create(run_id, "{}")
            rivals = [
                stores.runs.claim_and_own(run_id, PENDING, OwnerId("host", pid, f"n{pid}"), now)
                for pid, stores in enumerate([one, other, one, other])
            ]
            answers = await asyncio.gather(*rivals)
            assert sorted(map(str, answers)) == sorted(map(str, [Activated(), *[HeartbeatFresh()] * 3]))
            assert await one.runs.get(run_id) == await other.runs.get(run_id)


async def test_processes_that_are_killed_lose_nothing_that_was_answered(url: str) -> None:
    command = [sys.executable, "-c", CREATES, url]
    killed = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in ("a", "b")]
    answered: list[str] = []
    for name, process in zip("ab", killed, strict=True):
        assert process.stdout is not None
        answered += [f"{name}-{process.stdout.readline().strip()}" for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        answered += [f"{name}-{line.strip()}" for line in process.stdout if line.endswith("\n")]
        process.stdout.close()
        process.wait()
    async with open_stores(url) as stores:
        for run_id in answered:
            assert (await stores.runs.get(RunId(run_id))).status is RunStatus.PENDING
        await own(stores)


@pytest.mark.parametrize("keep", [1, 20, -1])
async def test_a_line_cut_off_by_a_crash_is_dropped(url: str, path: Path, keep: int) -> None:
    async with open_stores(url) as stores:
        await stores.runs.create(R, "{}")
        before = path.read_bytes()
        await stores.runs.create(RunId("run-2"), "{}")
    line = path.read_bytes()[len(before) :]
    path.write_bytes(before + line[:keep])
    async with open_stores(url) as stores:
        assert await stores.runs.lineage(RunId("run-2")) == ()
        assert path.read_bytes() == before
        await stores.runs.create(RunId("run-2"), "{}")
    assert len(path.read_bytes()) == len(before + line)


async def test_a_last_line_with_a_hole_in_it_is_dropped(url: str, path: Path) -> None:
    async with open_stores(url) as stores:
        await stores.runs.create(R, "{}")
        before = path.read_bytes()
        await stores.runs.create(RunId("run-2"), "{}")
    torn = bytearray(path.read_bytes())
    torn[len(before) + 30 : len(before) + 40] = bytes(10)
    path.write_bytes(torn)
    async with open_stores(url) as stores:
        assert (await stores.runs.get(R)).run_id == R
        assert path.read_bytes() == before


async def test_damage_to_an_earlier_line_is_reported_and_nothing_is_cut_off(url: str, path: Path) -> None:
    async with open_stores(url) as stores:
        for number in range(3):
            await stores.runs.create(RunId(f"run-{number}"), "{}")
    damaged = path.read_bytes().replace(b"run-1", b"run-7")
    path.write_bytes(damaged)
    with pytest.raises(DatabaseError):
        async with open_stores(url):
            pass
    assert path.read_bytes() == damaged


async def test_damage_met_later_is_decode_failed(url: str, path: Path) -> None:
    async with open_stores(url) as stores:
        await stores.runs.create(R, "{}")
        path.write_bytes(b"")
        with pytest.raises(RunStoreError) as failure:
            await stores.runs.get(R)
        assert failure.value.code == "decode_failed"
        with pytest.raises(AttemptStoreError) as attempt_failure:
            await stores.attempts.get(AttemptId(R, "digest", 1))
        assert (attempt_failure.value.code, attempt_failure.value.__context__) == ("decode_failed", None)


@pytest.mark.parametrize("content", [b"my diary\n", b"my diary", b'["00000000",[2]]\n'])
async def test_a_file_of_somebody_elses_is_left_alone(url: str, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(SchemaMismatch):
        async with open_stores(url):
            pass
    assert path.read_bytes() == content


async def test_a_file_that_was_cut_off_in_its_first_line_is_begun_anew(url: str, path: Path) -> None:
    async with open_stores(url):
        pass
    head = path.read_bytes()
    path.write_bytes(head[:5])
    async with open_stores(url) as stores:
        await own(stores)
    assert path.read_bytes().startswith(head)


async def test_a_folder_that_is_not_there_is_reported_without_its_name(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError) as failure:
        async with open_stores(f"jsonl:///{tmp_path}/secret/runs.jsonl"):
            pass
    assert "secret" not in repr(failure.value)


@contextmanager
def room_for(size: int) -> Generator[None]:
    """Let files of this process grow no further, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_is_reported_and_leaves_no_half_a_line(url: str, path: Path) -> None:
    async with open_stores(url) as stores, open_stores(url) as other:
        await own(stores)
        before = path.read_bytes()
        with room_for(len(before) + 200):
            with pytest.raises(RunStoreError) as failure:
                await stores.runs.create(RunId("run-2"), f'"{"x" * 500}"')
            assert (failure.value.code, failure.value.__context__) == ("persistence_failed", None)
            assert path.read_bytes() == before
            # What still fits is stored.
            assert await stores.runs.heartbeat(R, A, int(stores.clock.now())) == Updated()
        assert await other.runs.lineage(RunId("run-2")) == ()
        assert await other.runs.get(R) == await stores.runs.get(R)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Be alone with the file, as another process is in the middle of a call."""
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def test_a_call_waits_for_the_call_of_another_process(url: str, path: Path) -> None:
    async with open_stores(url) as stores:
        with locked(path):
            before = path.read_bytes()
            call = asyncio.create_task(stores.runs.create(R, "{}"))
            assert await asyncio.wait([call], timeout=0.2) == (set(), {call})
            assert path.read_bytes() == before
        await call
        assert (await stores.runs.get(R)).run_id == R


async def test_a_cancelled_call_leaves_when_nothing_of_it_is_to_come(url: str, path: Path) -> None:
    async with open_stores(url) as stores:
        with locked(path):
            call = asyncio.create_task(stores.runs.create(R, "{}"))
            await asyncio.wait([call], timeout=0.1)
            call.cancel()
            assert await asyncio.wait([call], timeout=0.1) == (set(), {call})
        with pytest.raises(asyncio.CancelledError):
            await call
        left = path.read_bytes()
        assert (await stores.runs.get(R)).run_id == R
        assert path.read_bytes() == left
