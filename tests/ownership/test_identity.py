"""Proof of death, on real processes: nobody is called gone who is not."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from belay_core.ids import Uuid7Ids
from belay_core.ownership import identity
from belay_core.ownership.identity import ProcessIdentity, is_gone, may_exist, this_process
from belay_core.ownership.liveness import LivenessContext, local_probe, same_host_pid_probe
from belay_core.records.owner import OwnerId

TELL = """
import json, os, signal, subprocess, sys, time
from belay_core.ids import Uuid7Ids
from belay_core.ownership.identity import ProcessIdentity, is_gone, this_process
from belay_core.records.owner import OwnerId

ids = Uuid7Ids()
me = this_process(ids)

def told(process):
    host, pid, start = json.loads(process.stdout.readline())
    return ProcessIdentity(host, pid, start)

def another():
    program = os.environ["TELL"] + "tell()\\nsys.stdin.read()"
    return subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)

def tell(*more):
    print(json.dumps([me.host_id, me.pid, me.start, *more]), flush=True)
"""
EXIT_OF_A_THREAD = {"x86_64": 60, "aarch64": 93}

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux shows when a process began")


class Other:
    """A process beside this one that has told who it is."""

    def __init__(self, program: str, *wrapped_in: str) -> None:
        self.process = subprocess.Popen(
            [*wrapped_in, sys.executable, "-c", TELL + dedent(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TELL": TELL},
        )
        assert self.process.stdout is not None
        reported = self.process.stdout.readline()
        host, pid, start, *self.more = json.loads(reported)
        self.identity = ProcessIdentity(host, pid, start)
        self.owner = self.identity.owner(Uuid7Ids())

    def kill(self, *, reap: bool = True) -> None:
        self.process.kill()
        if reap:
            self.process.wait()
        else:
            self.until(lambda: self.state == "Z")

    @property
    def state(self) -> str:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(500):
            if holds():
                return
            time.sleep(0.01)
        raise AssertionError("it never came to that")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def beside() -> Iterator[Callable[..., Other]]:
    """Starts processes, and ends them after the test."""
    others: list[Other] = []

    def start(program: str = "tell()\nsys.stdin.read()", *wrapped_in: str) -> Other:
        others.append(Other(program, *wrapped_in))
        return others[-1]

    yield start
    for other in others:
        other.close()


@pytest.fixture
def apart(beside: Any) -> Callable[..., Other]:
    """Starts a process in namespaces of its own, where that is allowed."""

    def start(program: str, *flags: str) -> Other:
        wrapped_in = ("unshare", "--fork", *flags)
        try:
            allowed = subprocess.run([*wrapped_in, "true"], check=False, capture_output=True).returncode == 0
        except FileNotFoundError:
            allowed = False
        if not allowed:
            pytest.skip("namespaces need the right to make them")
        other: Other = beside(program, *wrapped_in)
        return other

    return start


@pytest.fixture
def here() -> ProcessIdentity:
    return this_process(Uuid7Ids())


def test_this_process_is_not_gone_and_its_owners_differ(here):
    ids = Uuid7Ids()
    owners = {here.owner(ids) for _ in range(100)}
    assert len(owners) == 100
    assert here.pid == os.getpid()
    assert {owner.nonce.partition("-")[0] for owner in owners} == {here.start}
    assert not any(is_gone(owner, here) for owner in owners)


def test_a_process_is_gone_when_it_was_killed_and_not_before(beside, here):
    other = beside()
    assert other.identity.host_id == here.host_id
    assert not is_gone(other.owner, here)
    other.kill()
    assert is_gone(other.owner, here)
    assert not is_gone(here.owner(Uuid7Ids()), here)


def test_a_killed_process_nobody_has_waited_for_is_gone(beside, here):
    """To the pid probe it is there until its parent asks how it ended."""
    other = beside()
    other.kill(reap=False)
    assert is_gone(other.owner, here)
    assert may_exist(other.owner.pid)
    assert same_host_pid_probe(other.owner, LivenessContext(here.owner(Uuid7Ids()), None, 0))


def test_a_stopped_process_is_not_gone(beside, here):
    other = beside()
    other.process.send_signal(signal.SIGSTOP)
    other.until(lambda: other.state == "T")
    assert not is_gone(other.owner, here)


def test_a_process_whose_first_thread_has_ended_is_not_gone_while_another_works(beside, here):
    number = EXIT_OF_A_THREAD.get(platform.machine())
    if number is None:
        pytest.skip("the number of the call is not known for this machine")
    other = beside(
        f"""
        import ctypes, threading
        threading.Thread(target=lambda: [time.sleep(0.01) for _ in range(10_000)]).start()
        tell()
        ctypes.CDLL(None).syscall({number}, 0)
        """
    )
    other.until(lambda: other.state == "Z")
    assert not is_gone(other.owner, here)
    other.kill()
    assert is_gone(other.owner, here)


def test_an_id_in_use_again_belongs_to_another_process(beside, here):
    """The owner's process had this id, and began at another time."""
    other = beside()
    earlier = ProcessIdentity(here.host_id, other.identity.pid, str(int(other.identity.start) - 1))
    assert is_gone(earlier.owner(Uuid7Ids()), here)
    assert not is_gone(other.owner, here)


@pytest.mark.parametrize(
    "nonce",
    ["owner-a", "0-abc", "abc", "12345", "-1-abc", "12345678-1234-4234-8234-123456789012", "\u0661-abc", ""],
)
def test_a_nonce_of_another_make_proves_nothing(here, nonce):
    """The process is there, and nobody knows when it began; the same for one that is not there."""
    for pid in (os.getpid(), 2**22 + 1):
        assert not is_gone(OwnerId(here.host_id, pid, nonce), here)


@pytest.mark.parametrize("pid", [0, -1, 2**53])
def test_an_id_no_process_has_proves_nothing(here, pid):
    assert not is_gone(OwnerId(here.host_id, pid, f"{here.start}-abc"), here)


def test_an_id_beyond_what_the_system_has_proves_nothing(here):
    assert may_exist(2**40)
    assert not is_gone(OwnerId(here.host_id, 2**40, f"{here.start}-abc"), here)


def test_an_observer_who_does_not_know_its_own_start_proves_nothing(beside, here):
    other = beside()
    other.kill()
    assert not is_gone(other.owner, ProcessIdentity(here.host_id, here.pid, "0"))


def test_without_the_file_system_nobody_shares_a_host_with_this_process(monkeypatch, here):
    def nothing(*_: Any, **__: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", nothing)
    monkeypatch.setattr(Path, "readlink", nothing)
    first, second = this_process(Uuid7Ids()), this_process(Uuid7Ids())
    assert len({first.host_id, second.host_id, here.host_id}) == 3
    assert first.start == "0"


def test_a_process_that_is_not_shown_is_asked_for_before_it_is_called_gone(monkeypatch, beside, here):
    other = beside()
    monkeypatch.setattr(identity, "_process_status", lambda pid: None)
    assert not is_gone(other.owner, here)
    other.kill()
    assert is_gone(other.owner, here)


# ---------------------------------------------------------------- namespaces


def test_a_process_in_another_namespace_of_ids_is_on_another_host(apart, here):
    inner = apart("tell()\nsys.stdin.read()", "--pid", "--mount-proc")
    assert inner.identity.pid == 1
    assert inner.identity.start != "0"
    assert inner.identity.host_id != here.host_id
    assert not is_gone(inner.owner, here)
    assert not is_gone(here.owner(Uuid7Ids()), inner.identity)
    # This process 1 began at another time than the one inside: told apart by the host alone.
    inner.close()
    assert not is_gone(inner.owner, here)


def test_in_a_namespace_of_its_own_a_process_sees_its_fellows_end(apart):
    inner = apart(
        """
        other = another()
        owner = told(other).owner(ids)
        before = is_gone(owner, me)
        other.kill()
        other.communicate()
        tell(before, is_gone(owner, me))
        """,
        "--pid",
        "--mount-proc",
    )
    assert inner.more == [False, True]


def test_a_namespace_that_shows_the_ids_of_the_one_around_it_proves_nothing(apart, here):
    """``/proc`` is still that of the outside, where each inner id belongs to somebody else or to nobody."""
    inner = apart(
        """
        other = another()
        fellow = told(other)
        known = ProcessIdentity(me.host_id, fellow.pid, "4711").owner(ids)
        answers = [is_gone(fellow.owner(ids), me), is_gone(known, me)]
        other.kill()
        other.communicate()
        tell(fellow.start, *answers, is_gone(fellow.owner(ids), me), is_gone(known, me))
        """,
        "--pid",
    )
    assert inner.identity.start == "0"
    assert inner.identity.host_id != here.host_id
    assert inner.more == ["0", False, False, False, False]


def test_a_process_that_another_user_may_not_see_is_not_gone(apart):
    inner = apart(
        """
        subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
        me = this_process(ids)
        visible = another()
        hidden = told(visible).owner(ids)
        if not (child := os.fork()):
            os.setgroups([])
            os.setgid(65_534)
            os.setuid(65_534)
            shown = os.path.exists(f"/proc/{hidden.pid}")
            os._exit(2 * shown + is_gone(hidden, this_process(ids)))
        _, status = os.waitpid(child, 0)
        visible.kill()
        visible.communicate()
        tell(os.waitstatus_to_exitcode(status), is_gone(hidden, me))
        """,
        "--pid",
        "--mount",
    )
    assert inner.more == [0, True]


def test_a_process_in_another_namespace_of_time_is_on_another_host(apart, here):
    """From there every process seems to have begun at another moment."""
    inner = apart("tell()\nsys.stdin.read()", "--time", "--boottime", "100000")
    assert inner.identity.host_id != here.host_id
    assert not is_gone(inner.owner, here)
    assert not is_gone(here.owner(Uuid7Ids()), inner.identity)


# ---------------------------------------------------------------- as evidence


async def test_proof_of_death_takes_a_stale_run_and_never_a_fresh_one(beside, here, belay_each_store, belay_clock):
    from belay_core.ids import RunId
    from belay_core.records.run import RunSnapshot, RunStatus
    from belay_core.stores.run_contract import Activated, EvidenceRequired, HeartbeatFresh

    other, run_id = beside(), RunId("run-1")
    probe, mine = local_probe(here), here.owner(Uuid7Ids())
    async with belay_each_store as stores:
        await stores.runs.create(run_id, "{}")
        now = int(belay_clock.now())
        pending = RunSnapshot(RunStatus.PENDING)
        assert await stores.runs.claim_and_own(run_id, pending, other.owner, now) == Activated()
        read = (await stores.runs.get(run_id)).snapshot
        belay_clock.advance(30_001)
        now = int(belay_clock.now())
        assert probe(other.owner, mine, now) is None
        assert await stores.runs.claim_and_own(run_id, read, mine, now) == EvidenceRequired()
        other.kill()
        fresh = now - 1
        early = await stores.runs.claim_and_own(run_id, read, mine, fresh, probe(other.owner, mine, fresh))
        assert early == HeartbeatFresh()
        late = await stores.runs.claim_and_own(run_id, read, mine, now, probe(other.owner, mine, fresh))
        assert late == EvidenceRequired()
        taken = await stores.runs.claim_and_own(run_id, read, mine, now, probe(other.owner, mine, now))
        assert taken == Activated()
