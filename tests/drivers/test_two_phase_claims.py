"""Reserving a run first and owning it then: claims, activation, stealing from the dead (cases 10 to 37)."""

from typing import Any

import pytest

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.outcomes.runs import (
    Abandoned,
    Activated,
    AlreadyClaimed,
    ClaimChanged,
    Claimed,
    ClaimFresh,
    ClaimLost,
    EvidenceRequired,
    FenceLost,
    HeartbeatFresh,
    LivenessUnconfirmed,
    NotFound,
    Recovered,
    SnapshotChanged,
    Transitioned,
    Updated,
)
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunSnapshot, RunStatus

A = OwnerId("host-a", 101, "owner-a")
B = OwnerId("host-a", 202, "owner-b")
C = OwnerId("host-b", 303, "owner-c")
PENDING = RunSnapshot(RunStatus.PENDING)
R = RunId("run-1")


def ev(about, by, at):
    kind: Any = "same-host-pid-dead" if about.host_id == by.host_id else "cross-host-unreachable-stale"
    return LivenessEvidence(about, at, kind)


@pytest.fixture
def runs(kit):
    kit.clock.set(0.0)
    return kit.stores.runs


async def activated(runs, owner=A, at=0):
    await runs.create(R, "{}")
    assert await runs.claim(R, PENDING, owner, at) == Claimed(at)
    assert await runs.activate(R, owner, at, PENDING) == Activated()


async def facts(kit) -> list[tuple[str, Any]]:
    def read(tx):
        query = "SELECT kind, facts FROM belay_journal WHERE kind LIKE 'ownership.%' ORDER BY run_id, entry"
        return tx.exec_driver_sql(query).all()

    import json

    rows = await kit.stores.runs._database.read(read)
    return [
        (kind.removeprefix("ownership."), (json.loads(text)["owner"]["nonce"], json.loads(text)["granted_at_ms"]))
        for kind, text in rows
    ]


async def test_10_a_run_is_reserved_once(runs):
    assert await runs.claim("missing", PENDING, A, 0) == NotFound()
    await runs.create(R, "{}")
    assert await runs.claim(R, PENDING, A, 0) == Claimed(0)
    assert await runs.claim(R, PENDING, B, 0) == AlreadyClaimed()
    row = await runs.get(R)
    assert (row.status, row.claim, row.claimed_at_ms, row.owner) == ("pending", A, 0, None)


async def test_11_a_running_run_is_never_claimable_nor_is_one_that_is_over(kit, runs):
    await activated(runs)
    assert await runs.claim(R, await runs.get(R), B, 0) == HeartbeatFresh()
    kit.clock.set(31_000)
    assert await runs.claim(R, await runs.get(R), B, 31_000) == SnapshotChanged()
    row = await runs.get(R)
    assert (row.claim, row.owner) == (None, A)
    assert await runs.transition_owned(R, A, "completed") == Transitioned()
    assert await runs.claim(R, await runs.get(R), B, 31_000) == SnapshotChanged()


async def test_02_each_stamp_is_of_the_clock_it_belongs_to(kit, runs):
    kit.clock.set(10.5)
    await runs.create(R, "{}")
    assert await runs.claim(R, PENDING, A, 10) == Claimed(10)
    assert await runs.activate(R, A, 10, PENDING) == Activated()
    kit.clock.set(11.5)
    await runs.transition_owned(R, A, "completed")
    row = await runs.get(R)
    assert (row.created_at_ms, row.started_at_ms, row.finished_at_ms) == (10, 10, 11)


async def test_19_an_old_claim_is_no_claim(kit, runs):
    await runs.create(R, "{}")
    assert await runs.claim(R, PENDING, A, 0) == Claimed(0)
    kit.clock.set(31_000)
    assert await runs.recover_claim(R, A, 0, B, 31_000, ev(A, B, 31_000)) == Recovered()
    assert await runs.claim(R, PENDING, A, 31_000) == Claimed(31_000)
    assert await runs.activate(R, A, 0, PENDING) == ClaimLost()
    assert await runs.abandon_claim(R, A, 0) == ClaimLost()
    row = await runs.get(R)
    assert (row.claim, row.claimed_at_ms) == (A, 31_000)
    assert await runs.activate(R, A, 31_000, PENDING) == Activated()


async def test_20_only_the_stale_are_stolen_from_and_only_with_proof_about_them(kit, runs):
    await activated(runs)
    read = await runs.get(R)
    assert await runs.steal(R, read, C, 0, ev(A, C, 0)) == HeartbeatFresh()
    kit.clock.set(31_000)
    assert await runs.claim(R, read, C, 31_000) == SnapshotChanged()
    assert await runs.steal(R, read, C, 31_000, ev(B, C, 31_000)) == LivenessUnconfirmed()
    assert await runs.steal(R, read, C, 31_000, ev(A, C, 31_000)) == Claimed(31_000)
    row = await runs.get(R)
    assert (row.status, row.owner, row.heartbeat_at_ms, row.claim) == ("running", A, 0, C)


async def test_22_an_owner_that_shows_a_sign_of_life_keeps_its_run(kit, runs):
    await activated(runs)
    stale = await runs.get(R)
    kit.clock.set(31_000)
    assert await runs.steal(R, stale, B, 31_000, ev(A, B, 31_000)) == Claimed(31_000)
    assert await runs.heartbeat(R, A, 31_000) == Updated()
    assert await runs.activate(R, B, 31_000, stale) == SnapshotChanged()
    row = await runs.get(R)
    assert (row.owner, row.heartbeat_at_ms, row.claim, row.claimed_at_ms) == (A, 31_000, None, None)


async def test_23_an_owner_in_doubt_is_not_confirmed_while_somebody_claims(kit, runs):
    await activated(runs)
    stale = await runs.get(R)
    kit.clock.set(31_000)
    await runs.steal(R, stale, B, 31_000, ev(A, B, 31_000))
    assert await runs.reconfirm(R, A, 31_000) == FenceLost()
    assert await runs.abandon_claim(R, B, 31_000) == Abandoned()
    row = await runs.get(R)
    assert (row.owner, row.heartbeat_at_ms, row.claim) == (A, 0, None)
    assert await runs.reconfirm(R, A, 31_000) == Updated()
    assert (await runs.get(R)).heartbeat_at_ms == 31_000
    assert await runs.reconfirm("missing", A, 31_000) == NotFound()


async def test_23_a_stolen_run_is_its_new_owners_once_it_is_activated(kit, runs):
    await activated(runs)
    stale = await runs.get(R)
    kit.clock.set(31_000)
    await runs.steal(R, stale, B, 31_000, ev(A, B, 31_000))
    assert await runs.activate(R, B, 31_000, stale) == Activated()
    assert await runs.heartbeat(R, A, 31_001) == FenceLost()
    assert (await runs.get(R)).owner == B


@pytest.mark.parametrize(("now", "late"), [(29_999, False), (30_000, False), (30_001, True)])
async def test_25_thirty_seconds_are_fresh_and_a_millisecond_more_is_stale(kit, runs, now, late):
    await runs.create(R, "{}")
    await runs.claim(R, PENDING, A, 0)
    kit.clock.set(now)
    found = await runs.recover_claim(R, A, 0, B, now, ev(A, B, now))
    assert found == (Recovered() if late else ClaimFresh())
    await runs.abandon_claim(R, A, 0)
    kit.clock.set(0)
    assert await runs.claim_and_own(R, PENDING, A, 0) == Activated()
    kit.clock.set(now)
    found = await runs.steal(R, await runs.get(R), C, now, ev(A, C, now))
    assert found == (Claimed(now) if late else HeartbeatFresh())


@pytest.mark.parametrize("wrong", ["moment", "same host", "other host"])
async def test_26_evidence_counts_for_one_owner_one_moment_and_the_right_kind(kit, runs, wrong):
    await activated(runs)
    read, now = await runs.get(R), 40_000
    kit.clock.set(now)
    taker = C if wrong == "other host" else B
    kind: Any = {
        "moment": "same-host-pid-dead",
        "same host": "cross-host-unreachable-stale",
        "other host": "same-host-pid-dead",
    }[wrong]
    proof = LivenessEvidence(A, now - (wrong == "moment"), kind)
    assert await runs.steal(R, read, taker, now, proof) == LivenessUnconfirmed()
    assert await runs.claim_and_own(R, read, taker, now, proof) == EvidenceRequired()
    assert await runs.recover_claim(R, A, 0, taker, now, proof) == LivenessUnconfirmed()


async def test_28_a_lapsed_lease_is_evidence_from_anywhere_once_it_has_lapsed(kit, runs):
    await activated(runs)
    read = await runs.get(R)
    kit.clock.set(30_001)
    assert await runs.steal(R, read, C, 29_999, LivenessEvidence(A, 29_999, "lease-expired")) == HeartbeatFresh()
    naming_another = LivenessEvidence(C, 30_001, "lease-expired")
    assert await runs.steal(R, read, C, 30_001, naming_another) == LivenessUnconfirmed()
    assert await runs.steal(R, read, C, 30_001, LivenessEvidence(A, 30_001, "lease-expired")) == Claimed(30_001)


async def test_recovering_answers_in_its_order(kit, runs):
    kit.clock.set(40_000)
    now = 40_000
    assert await runs.recover_claim("missing", A, 0, B, now, ev(C, B, now)) == LivenessUnconfirmed()
    assert await runs.recover_claim("missing", A, 0, B, now, ev(A, B, now)) == NotFound()
    await runs.create(R, "{}")
    assert await runs.recover_claim(R, A, 0, B, now, ev(A, B, now)) == ClaimChanged()


async def test_36_37_suspending_under_a_pending_steal_leaves_no_stuck_claim(kit, runs):
    await activated(runs)
    stale = await runs.get(R)
    kit.clock.set(31_000)
    await runs.steal(R, stale, B, 31_000, ev(A, B, 31_000))
    assert await runs.transition_owned(R, A, "suspended", '{"reason":"opaque"}') == Transitioned()
    row = await runs.get(R)
    assert (row.owner, row.heartbeat_at_ms, row.claim, row.claimed_at_ms) == (None, None, None, None)
    assert (row.finished_at_ms, row.state_json) == (None, '{"reason":"opaque"}')
    assert await runs.claim(R, row, C, 31_000) == Claimed(31_000)


async def test_91_each_change_of_ownership_leaves_its_fact_and_refusals_leave_none(kit, runs):
    await activated(runs)
    await runs.heartbeat(R, A, 0)
    stale = await runs.get(R)
    kit.clock.set(31_000)
    assert await runs.steal(R, stale, C, 31_000, ev(B, C, 31_000)) == LivenessUnconfirmed()
    await runs.steal(R, stale, B, 31_000, ev(A, B, 31_000))
    await runs.abandon_claim(R, B, 31_000)
    await runs.steal(R, stale, B, 31_000, ev(A, B, 31_000))
    await runs.heartbeat(R, A, 31_000)
    await runs.activate(R, B, 31_000, stale)
    await runs.transition_owned(R, A, "completed")
    assert await facts(kit) == [
        ("claimed", (A.nonce, 0)),
        ("activated", (A.nonce, 0)),
        ("stolen", (B.nonce, 31_000)),
        ("released", (B.nonce, 31_000)),
        ("stolen", (B.nonce, 31_000)),
        ("released", (B.nonce, 31_000)),
        ("released", (A.nonce, None)),
    ]


async def test_an_activated_run_is_fenced_from_the_engine_that_had_it(kit, runs):
    lease = await kit.own()
    kit.clock.set(40_000)
    read = await runs.get(R)
    await runs.steal(R, read, C, 40_000, LivenessEvidence(lease.owner, 40_000, "lease-expired"))
    assert type(await kit.record(lease, kit.step())).__name__ == "Recorded"
    kit.clock.set(80_000)
    read = await runs.get(R)
    await runs.abandon_claim(R, C, 40_000)
    await runs.steal(R, read, C, 80_000, LivenessEvidence(lease.owner, 80_000, "lease-expired"))
    assert await runs.activate(R, C, 80_000, read) == Activated()
    assert await kit.record(lease, kit.step("b#1")) == FenceLost()


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda runs: runs.claim("", PENDING, A, 0), "run_id"),
        (lambda runs: runs.claim(R, None, A, 0), "expected"),
        (lambda runs: runs.claim(R, {"status": "unknown", "owner": None, "heartbeat_at_ms": None}, A, 0), "expected"),
        (lambda runs: runs.claim(R, PENDING, None, 0), "claimant"),
        (lambda runs: runs.claim(R, PENDING, A, 1.5), "now_ms"),
        (lambda runs: runs.claim(R, PENDING, A, 10_001), "now_ms"),
        (lambda runs: runs.activate(R, A, -1, PENDING), "claimed_at_ms"),
        (lambda runs: runs.abandon_claim(R, A, True), "claimed_at_ms"),
        (lambda runs: runs.recover_claim(R, A, 0, "b", 0, ev(A, B, 0)), "observer"),
        (lambda runs: runs.recover_claim(R, A, 0, B, 0, None), "evidence"),
        (lambda runs: runs.steal(R, PENDING, A, 0, {"kind": "x"}), "evidence"),
        (lambda runs: runs.reconfirm(R, A, 2**53), "now_ms"),
    ],
)
async def test_what_breaks_a_rule_is_refused_by_name_and_changes_nothing(runs, call, field):
    await runs.create(R, "{}")
    before = await runs.get(R)
    with pytest.raises(RunStoreError) as found:
        await call(runs)
    assert found.value.code == "invalid_run"
    assert found.value.cause is not None
    assert found.value.cause["field"] == field
    assert await runs.get(R) == before
