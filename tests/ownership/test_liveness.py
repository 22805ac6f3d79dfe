"""Evidence, checks and the pid probe (specs, run store 5.1 and 8.1 to 8.3)."""

import os
import sys
from datetime import timedelta
from itertools import product
from typing import Any, get_args

import pytest

from belay_core.ids import Uuid7Ids
from belay_core.ownership import identity
from belay_core.ownership.identity import ProcessIdentity, this_process
from belay_core.ownership.liveness import (
    LivenessCheck,
    LivenessContext,
    LivenessProbe,
    evidence_matches_owner,
    lease_liveness,
    local_probe,
    same_host_incarnation,
    same_host_pid_probe,
)
from belay_core.records.owner import EvidenceKind, LivenessEvidence, OwnerId

A = OwnerId("host-a", 101, "owner-a")
B = OwnerId("host-a", 202, "owner-b")
C = OwnerId("host-b", 303, "owner-c")
NOW = 30_001


def evidence(owner: OwnerId, at: int = NOW, kind: Any = "lease-expired") -> LivenessEvidence:
    return LivenessEvidence(owner, at, kind)


def test_evidence_fits_the_owner_the_moment_and_what_the_observer_can_know():
    fits = {"same-host-pid-dead": (True, False), "cross-host-unreachable-stale": (False, True)}
    for kind, (same, cross) in {**fits, "lease-expired": (True, True)}.items():
        assert evidence_matches_owner(A, B, NOW, evidence(A, kind=kind)) is same
        assert evidence_matches_owner(A, C, NOW, evidence(A, kind=kind)) is cross


@pytest.mark.parametrize("kind", get_args(EvidenceKind))
@pytest.mark.parametrize("observer", [B, C])
def test_evidence_about_another_owner_or_moment_fits_nobody(kind, observer):
    others = [
        C,
        B,
        OwnerId("host-b", 101, "owner-a"),
        OwnerId("host-a", 102, "owner-a"),
        OwnerId("host-a", 101, "owner-b"),
    ]
    assert not any(evidence_matches_owner(A, observer, NOW, evidence(other, kind=kind)) for other in others)
    assert not any(evidence_matches_owner(A, observer, NOW, evidence(A, at, kind)) for at in (NOW - 1, NOW + 1, 0))


@pytest.mark.parametrize("observer", [A, B, C])
@pytest.mark.parametrize("kind", ["", "unheard-of", "SAME-HOST-PID-DEAD", None])
def test_evidence_of_a_kind_nobody_has_defined_proves_nothing(kind, observer):
    assert not evidence_matches_owner(A, observer, NOW, evidence(A, kind=kind))


def test_an_owner_who_observes_itself_is_on_its_own_host():
    assert evidence_matches_owner(A, A, NOW, evidence(A, kind="same-host-pid-dead"))


def test_incarnations_share_a_host_by_its_id_alone():
    assert same_host_incarnation(A, B)
    assert not same_host_incarnation(A, C)


@pytest.mark.parametrize(
    ("heartbeat", "now", "alive"),
    [(0, 30_000, True), (0, 30_001, False), (None, 0, False), (5, 0, True), (0, 0, True)],
)
def test_a_lease_lives_up_to_and_at_thirty_seconds(heartbeat, now, alive):
    assert lease_liveness()(A, LivenessContext(C, heartbeat, now)) is alive


def test_a_lease_may_be_judged_by_another_span():
    check = lease_liveness(timedelta(seconds=2))
    assert check(A, LivenessContext(C, 0, 2_000))
    assert not check(A, LivenessContext(C, 0, 2_001))


# ---------------------------------------------------------------- the pid probe


@pytest.fixture
def asked(monkeypatch):
    """Records which processes are asked for; ``answers`` are raised where they are errors."""

    class Asked(list[tuple[int, int]]):
        answer: BaseException | None = None

    seen = Asked()

    def kill(pid: int, number: int) -> None:
        seen.append((pid, number))
        if seen.answer is not None:
            raise seen.answer

    monkeypatch.setattr(os, "kill", kill)
    return seen


def probe(owner: OwnerId, claimant: OwnerId = B) -> bool:
    return same_host_pid_probe(owner, LivenessContext(claimant, 0, NOW))


def test_another_host_is_not_probed_and_never_alive(asked):
    assert not probe(A, C)
    assert asked == []


@pytest.mark.parametrize("pid", [0, -1, -101, 2**53, True, 1.0, "101", None])
def test_an_id_no_process_can_have_is_not_probed_and_counts_as_alive(asked, pid):
    assert probe(OwnerId("host-a", pid, "owner-a"))
    assert asked == []


def test_only_no_such_process_is_death(asked):
    assert probe(A)
    asked.answer = ProcessLookupError()
    assert not probe(A)
    for answer in (PermissionError(), OSError(22, "invalid"), OverflowError(), ValueError(), RuntimeError()):
        asked.answer = answer
        assert probe(A)
    assert asked == [(101, 0)] * 7


def test_on_windows_nobody_is_asked(asked, monkeypatch):
    """What asks elsewhere would interrupt the process there."""
    monkeypatch.setattr(sys, "platform", "win32")
    asked.answer = ProcessLookupError()
    assert probe(A)
    assert asked == []


def test_an_owner_with_the_callers_own_id_is_alive():
    assert probe(OwnerId("host-a", os.getpid(), "an earlier engine of this process"))


# ---------------------------------------------------------------- evidence of this host


def test_evidence_of_this_host_names_owner_and_moment(monkeypatch):
    me = this_process(Uuid7Ids())
    mine = me.owner(Uuid7Ids())
    dead = ProcessIdentity(me.host_id, 101, "4711").owner(Uuid7Ids())
    monkeypatch.setattr(identity, "_process_status", lambda pid: None)
    monkeypatch.setattr(identity, "may_exist", lambda pid: False)
    found = local_probe(me)(dead, mine, NOW)
    assert found == LivenessEvidence(dead, NOW, "same-host-pid-dead")
    assert found is not None
    assert evidence_matches_owner(dead, mine, NOW, found)
    for owner, claimant in product((dead, A), (mine, C)):
        expected = owner is dead and claimant is mine
        assert (local_probe(me)(owner, claimant, NOW) is not None) is expected


def test_checks_and_probes_are_what_they_are_called():
    checks: list[LivenessCheck] = [lease_liveness(), same_host_pid_probe]
    probes: list[LivenessProbe] = [local_probe(this_process(Uuid7Ids()))]
    assert all(map(callable, [*checks, *probes]))
