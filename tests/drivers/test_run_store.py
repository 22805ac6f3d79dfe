"""RunStore: the contract's runs, and that exactly one owner may write to each."""

import asyncio
import json
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from belay_core.errors import DatabaseError, RunStoreError
from belay_core.ids import RunId
from belay_core.outcomes.runs import (
    Activated,
    AlreadyClaimed,
    EvidenceRequired,
    FenceLost,
    GuardFailed,
    HeartbeatFresh,
    NotFound,
    SnapshotChanged,
    Transitioned,
    Updated,
)
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunRow, RunSnapshot, RunStatus, TransitionGuard

A = OwnerId("host-a", 101, "owner-a")
B = OwnerId("host-a", 202, "owner-b")
C = OwnerId("host-b", 303, "owner-c")
PENDING = RunSnapshot(RunStatus.PENDING)
R = RunId("run-1")


def evidence(about, by, at):
    if about.host_id == by.host_id:
        return LivenessEvidence(about, at, "same-host-pid-dead")
    return LivenessEvidence(about, at, "cross-host-unreachable-stale")


@pytest.fixture
def runs(kit):
    kit.clock.set(0.0)
    return kit.stores.runs


async def own(runs, owner=A, now=0, run_id=R):
    await runs.create(run_id, "{}")
    assert await runs.claim_and_own(run_id, PENDING, owner, now) == Activated()


async def refused(call, code="invalid_run") -> Any:
    with pytest.raises(RunStoreError) as failure:
        await call
    assert failure.value.code == code
    return failure.value


async def test_a_created_run_reads_back_with_nothing_but_its_state(runs):
    await runs.create(R, '{"cursor":1}')
    row = await runs.get(R)
    names = {field.name for field in fields(RunRow)}
    said = {name: value for name in names if (value := getattr(row, name)) is not None}
    assert said == {"run_id": R, "status": "pending", "created_at_ms": 0, "state_json": '{"cursor":1}'}


@pytest.mark.parametrize(
    "state", [' {"b":1,\n "a" : 1.0e2} ', '"\\u0000"', "[12345678901234567890123]", '{"a":1,"a":2}']
)
async def test_the_state_is_kept_to_the_byte(runs, state):
    await runs.create(R, state)
    assert (await runs.get(R)).state_json == state


async def test_a_clock_between_two_milliseconds_stamps_the_earlier(kit, runs):
    kit.clock.set(10.5)
    await own(runs, now=10)
    kit.clock.set(11.5)
    assert await runs.transition_owned(R, A, RunStatus.COMPLETED) == Transitioned()
    row = await runs.get(R)
    assert (row.created_at_ms, row.started_at_ms, row.finished_at_ms) == (10, 10, 11)


async def test_what_no_database_could_keep_is_refused_before_anything_is_stored(runs):
    await runs.create(RunId("parent"), "{}")
    calls = [
        runs.create(RunId("parent-\ud800"), "{}"),
        runs.create(R, "{}", {"parent_run_id": "parent-\ud800"}),
        runs.create(R, "{}", {"lineage_id": "lineage-\udc00", "round_ordinal": 1}),
        runs.create(R, '"\ud800"'),
        runs.create(R, '"\\ud800"'),
        *(runs.create(R, state) for state in (None, 42, {"value": True}, "not-json", "", b"{}", "NaN", "1e999")),
        runs.create(RunId("nul\0"), "{}"),
        runs.create(RunId(""), "{}"),
        runs.create(RunId("x" * 1_025), "{}"),
        runs.create(RunId("\U0001f9d7" * 513), "{}"),
    ]
    for call in calls:
        await refused(call)
    await refused(runs.get(R), "not_found_row")


@pytest.mark.parametrize(
    "options",
    [
        {"lineage_id": "l"},
        {"round_ordinal": 1},
        {"lineage_id": "l", "round_ordinal": -1},
        {"lineage_id": "l", "round_ordinal": True},
        {"lineage_id": "l", "round_ordinal": 1.0},
        {"lineage_id": "l", "round_ordinal": 2**53},
        {"parent_run_id": ""},
        {"parent_run_id": 1},
        {"unknown": None},
        {1: None},
        SimpleNamespace(parent_run_id=None),
        [],
        "parent",
    ],
)
async def test_ancestry_is_whole_or_refused(runs, options):
    error = await refused(runs.create(R, "{}", options))
    assert error.cause["field"] == "options"
    await refused(runs.get(R), "not_found_row")


async def test_names_of_companion_streams_are_no_run_ids(runs):
    error = await refused(runs.create(RunId("flows.companion/run-store/" + "0" * 64), "{}"))
    assert error.cause == {"field": "run_id", "detail": "names a reserved journal companion stream"}


async def test_the_cause_of_a_refused_state_names_the_run_and_never_the_text(runs):
    error = await refused(runs.create(R, '{"secret":', CreateOptions(lineage_id="l", round_ordinal=2)))
    assert dict(error.cause) == {
        "field": "state_json",
        "detail": "must be valid JSON text",
        "run_id": R,
        "parent_run_id": None,
        "lineage_id": "l",
        "round_ordinal": 2,
        "state_json_length": 10,
        "state_json_valid": False,
    }
    assert str(error) == "invalid_run: RunStore.create: run input is invalid"


async def test_a_known_id_an_unknown_parent_and_a_taken_round_are_constraints(runs):
    await runs.create(R, "{}", CreateOptions(lineage_id="l", round_ordinal=1))
    calls = [
        runs.create(R, "{}"),
        runs.create(RunId("b"), "{}", CreateOptions(parent_run_id=RunId("nowhere"))),
        runs.create(RunId("b"), "{}", CreateOptions(lineage_id="l", round_ordinal=1)),
    ]
    for call in calls:
        error = await refused(call, "constraint")
        assert error.cause["category"] == "constraint"
        assert isinstance(error.cause["cause"], DatabaseError)
    assert (await runs.get(R)).lineage_id == "l"
    error = await refused(runs.get(RunId("b")), "not_found_row")
    assert (str(error), dict(error.cause)) == (
        "not_found_row: RunStore.get: run b was not found",
        {"run_id": "b"},
    )


async def test_a_child_names_its_parent_and_long_names_come_back_whole(runs):
    parent, lineage = RunId("漢" * 1_024), "sha256:looks-hashed"
    await runs.create(parent, "{}", CreateOptions(lineage_id=lineage, round_ordinal=0))
    await runs.create(RunId("kid"), "{}", CreateOptions(parent_run_id=parent))
    assert (await runs.get(parent)).lineage_id == lineage
    assert (await runs.get(RunId("kid"))).parent_run_id == parent


async def test_of_two_creations_at_once_one_is_a_constraint(runs):
    answers = await asyncio.gather(runs.create(R, "1"), runs.create(R, "2"), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["NoneType", "RunStoreError"]


async def test_a_missing_table_is_a_failure_of_persistence(kit, runs, raw):
    suffix = " CASCADE" if kit.stores.runs._database.dialect.name != "sqlite" else ""
    await raw(kit.stores, f"DROP TABLE belay_approvals{suffix}", f"DROP TABLE belay_run_values{suffix}")
    error = await refused(runs.get(R), "persistence_failed")
    assert str(error) == "persistence_failed: RunStore.get: database operation failed"
    await refused(runs.create(R, "{}"), "persistence_failed")


async def test_a_claim_needs_not_come_from_the_owner_to_be(kit, runs):
    engine = OwnerId("engine-host", 404, "engine-to-spawn")
    await own(runs, engine)
    row = await runs.get(R)
    assert (row.owner, row.heartbeat_at_ms, row.started_at_ms, row.status) == (engine, 0, 0, RunStatus.RUNNING)


async def test_a_fresh_owner_is_told_before_evidence_is_asked_for(runs):
    await own(runs)
    snapshot = (await runs.get(R)).snapshot
    assert await runs.claim_and_own(R, snapshot, B, 0) == HeartbeatFresh()
    assert (await runs.get(R)).owner == A


async def test_a_run_that_moved_on_is_not_claimed_by_what_was_read_before(kit, runs):
    await own(runs)
    read = (await runs.get(R)).snapshot
    assert await runs.transition_owned(R, A, RunStatus.SUSPENDED) == Transitioned()
    kit.clock.set(30_001)
    assert await runs.claim_and_own(R, read, B, 30_001) == SnapshotChanged()
    assert await runs.claim_and_own(R, PENDING, B, 30_001) == SnapshotChanged()
    assert await runs.claim_and_own(R, await runs.get(R), B, 30_001) == Activated()
    assert await runs.transition_owned(R, B, RunStatus.COMPLETED) == Transitioned()
    over = await runs.get(R)
    assert await runs.claim_and_own(R, over, C, 30_001) == SnapshotChanged()
    assert (await runs.get(R)) == over


async def test_a_deleted_run_and_a_reserved_one_are_told_before_evidence_is_asked_for(kit, runs, raw):
    await own(runs)
    read = (await runs.get(R)).snapshot
    claim = "claim_host_id = 'host-b', claim_pid = 1, claim_nonce = 'n', claimed_at = 0"
    await raw(kit.stores, f"UPDATE belay_runs SET {claim}")  # noqa: S608
    assert await runs.claim_and_own(R, read, B, 0) == AlreadyClaimed()
    assert (await runs.get(R)).claim == OwnerId("host-b", 1, "n")
    await raw(kit.stores, "DELETE FROM belay_run_values", "DELETE FROM belay_runs")
    assert await runs.claim_and_own(R, read, B, 0) == NotFound()
    assert await runs.claim_and_own(R, PENDING, B, 0) == NotFound()


@pytest.mark.parametrize(
    ("now", "answer"), [(29_999, HeartbeatFresh()), (30_000, HeartbeatFresh()), (30_001, Activated())]
)
@pytest.mark.parametrize("taker", [A, B, C])
async def test_exactly_thirty_seconds_old_is_fresh_also_for_the_owner_itself(kit, runs, now, answer, taker):
    await own(runs)
    kit.clock.set(now)
    proof = None if taker == A else evidence(A, taker, now)
    assert await runs.claim_and_own(R, await runs.get(R), taker, now, proof) == answer


async def test_evidence_that_does_not_fit_is_none(kit, runs):
    await own(runs)
    now = 40_000
    kit.clock.set(now)
    read = await runs.get(R)
    for proof in (
        None,
        evidence(A, B, now - 1),
        evidence(B, B, now),
        LivenessEvidence(A, now, "cross-host-unreachable-stale"),
    ):
        assert await runs.claim_and_own(R, read, B, now, proof) == EvidenceRequired()
    assert (
        await runs.claim_and_own(R, read, C, now, LivenessEvidence(A, now, "same-host-pid-dead")) == EvidenceRequired()
    )
    assert (await runs.get(R)).owner == A
    assert await runs.claim_and_own(R, read, C, now, LivenessEvidence(A, now, "lease-expired")) == Activated()
    assert await runs.heartbeat(R, A, now) == FenceLost()


async def test_of_eight_rivals_exactly_one_owns_the_run(runs):
    await runs.create(R, "{}")
    rivals = [OwnerId("h", pid, f"n{pid}") for pid in range(8)]
    answers = await asyncio.gather(*(runs.claim_and_own(R, PENDING, rival, 0) for rival in rivals))
    assert sum(answer == Activated() for answer in answers) == 1
    assert set(answers) == {Activated(), HeartbeatFresh()}


async def test_records_are_taken_in_belays_own_types_or_as_plain_dictionaries(runs):
    await runs.create(R, "{}")
    owner = {"host_id": "host-a", "pid": 101, "nonce": "owner-a"}
    snapshot = {"status": "pending", "owner": None, "heartbeat_at_ms": None, "anything": "else"}
    assert await runs.claim_and_own(R, snapshot, owner, 0) == Activated()
    assert (await runs.get(R)).owner == A


class Trap:
    """Its fields must never be read."""

    status = "pending"
    owner = None

    @property
    def heartbeat_at_ms(self):
        raise AssertionError("read")


class Sub(OwnerId):
    pass


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"expected": None}, "expected"),
        ({"expected": Trap()}, "expected"),
        ({"expected": SimpleNamespace(status="pending", owner=None, heartbeat_at_ms=None)}, "expected"),
        ({"expected": {"status": "pending", "owner": None}}, "expected"),
        ({"expected": RunSnapshot(cast("Any", "unknown"))}, "expected"),
        ({"expected": RunSnapshot(RunStatus.PENDING, None, -1)}, "expected"),
        ({"expected": RunSnapshot(RunStatus.PENDING, A, None)}, "expected"),
        ({"expected": RunSnapshot(RunStatus.RUNNING)}, "expected"),
        ({"expected": RunSnapshot(RunStatus.RUNNING, A, None)}, "expected"),
        ({"expected": RunSnapshot(RunStatus.RUNNING, OwnerId("", 1, "n"), 0)}, "expected.owner"),
        ({"owner": None}, "owner"),
        ({"owner": "owner"}, "owner"),
        ({"owner": OwnerId("h", -1, "n")}, "owner"),
        ({"owner": OwnerId("h", True, "n")}, "owner"),
        ({"owner": OwnerId("", 1, "n")}, "owner"),
        ({"owner": Sub("h", 1, "n")}, "owner"),
        ({"owner": {"host_id": "h", "pid": 1, "nonce": "n", "more": 1}}, "owner"),
        ({"now_ms": -1}, "now_ms"),
        ({"now_ms": 1.0}, "now_ms"),
        ({"now_ms": True}, "now_ms"),
        ({"now_ms": 2**53}, "now_ms"),
        ({"now_ms": 10_001}, "now_ms"),
        ({"evidence": LivenessEvidence(A, 0, cast("Any", "rumour"))}, "evidence.kind"),
        ({"evidence": LivenessEvidence(A, -1, "lease-expired")}, "evidence.checked_at_ms"),
        ({"evidence": LivenessEvidence(cast("Any", "A"), 0, "lease-expired")}, "evidence.expected_owner"),
        ({"evidence": {"expected_owner": A, "checked_at_ms": 0, "kind": "lease-expired", "x": 1}}, "evidence"),
        ({"evidence": Trap()}, "evidence"),
        ({"run_id": 1}, "run_id"),
    ],
)
async def test_a_claim_with_a_bad_parameter_is_refused_and_names_it(runs, change, field):
    await runs.create(R, "{}")
    given = {"run_id": R, "expected": PENDING, "owner": A, "now_ms": 0, "evidence": None, **change}
    error = await refused(runs.claim_and_own(**given))
    assert error.cause["field"] == field
    assert (await runs.get(R)).status is RunStatus.PENDING


async def test_a_reading_may_be_ten_seconds_ahead_and_no_more(runs):
    await own(runs)
    assert await runs.heartbeat(R, A, 10_000) == Updated()
    error = await refused(runs.heartbeat(R, A, 10_001))
    assert (error.cause["now_ms"], error.cause["clock_ms"]) == (10_001, 0)


async def test_a_late_heartbeat_counts_and_never_moves_the_stamp_back(kit, runs):
    kit.clock.set(1_000)
    await own(runs, now=100)
    for sent, stored in ((200, 200), (150, 200), (250, 250)):
        assert await runs.heartbeat(R, A, sent) == Updated()
        assert (await runs.get(R)).heartbeat_at_ms == stored
    assert await runs.heartbeat(R, B, 300) == FenceLost()
    assert await runs.heartbeat(RunId("nowhere"), A, 300) == NotFound()
    for bad in (-1, 1.5, float("nan"), 2**53):
        await refused(runs.heartbeat(R, A, bad))
    assert (await runs.get(R)).heartbeat_at_ms == 250


async def test_only_the_owner_moves_a_run_on(runs):
    assert await runs.transition_owned(RunId("nowhere"), A, RunStatus.FAILED) == NotFound()
    await own(runs)
    assert await runs.transition_owned(R, A, RunStatus.RUNNING, '{"cursor":1}') == Transitioned()
    assert await runs.transition_owned(R, A, "running") == Transitioned()
    row = await runs.get(R)
    assert (row.state_json, row.owner, row.status) == ('{"cursor":1}', A, RunStatus.RUNNING)
    for other in (B, replace(A, host_id="host-b"), replace(A, nonce="x"), replace(A, pid=1)):
        assert await runs.transition_owned(R, other, RunStatus.FAILED) == FenceLost()
    assert await runs.get(R) == row


@pytest.mark.parametrize(
    "change",
    [
        {"to_status": "unknown"},
        {"to_status": "pending"},
        {"to_status": None},
        {"state_json": "not-json"},
        {"state_json": 1},
        {"guard": {"cancel_requested": "unknown"}},
        {"guard": {"cancel_requested": "absent", "more": 1}},
        {"guard": "absent"},
        {"owner": "A"},
        {"run_id": "\ud800"},
    ],
)
async def test_a_bad_transition_is_refused_and_the_run_goes_on(runs, change):
    await own(runs)
    given = {"run_id": R, "owner": A, "to_status": RunStatus.FAILED, **change}
    await refused(runs.transition_owned(**given))
    await refused(runs.transition_owned(**{**given, "run_id": change.get("run_id", "nowhere")}))
    assert (await runs.get(R)).status is RunStatus.RUNNING


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "suspended"])
async def test_letting_go_clears_owner_and_claim_and_stamps_an_end(kit, runs, raw, status):
    await own(runs)
    claim = "claim_host_id = 'host-b', claim_pid = 1, claim_nonce = 'n', claimed_at = 0"
    await raw(kit.stores, f"UPDATE belay_runs SET {claim}")  # noqa: S608
    kit.clock.set(5)
    assert await runs.transition_owned(R, A, status, '{"reason":"opaque"}') == Transitioned()
    row = await runs.get(R)
    assert (row.owner, row.heartbeat_at_ms, row.claim, row.claimed_at_ms) == (None, None, None, None)
    assert (row.status, row.state_json) == (status, '{"reason":"opaque"}')
    assert row.finished_at_ms == (None if status == "suspended" else 5)
    assert await runs.transition_owned(R, A, status) == FenceLost()
    if status == "suspended":
        assert await runs.claim_and_own(R, row, C, 5) == Activated()


async def test_a_guard_is_judged_with_the_fence(kit, runs, raw):
    await own(runs)
    absent, present = TransitionGuard("absent"), TransitionGuard("present")
    assert await runs.transition_owned(R, A, RunStatus.CANCELLED, None, present) == GuardFailed()
    assert await runs.transition_owned(R, B, RunStatus.CANCELLED, None, present) == FenceLost()
    assert await runs.transition_owned(RunId("nowhere"), A, RunStatus.CANCELLED, None, present) == NotFound()
    assert await runs.transition_owned(R, A, RunStatus.RUNNING, '{"a":1}', absent) == Transitioned()
    assert await runs.transition_owned(R, A, RunStatus.RUNNING, None, {}) == Transitioned()
    await raw(kit.stores, "UPDATE belay_runs SET cancel_requested_at = 0")
    assert await runs.transition_owned(R, A, RunStatus.RUNNING, '{"a":2}', absent) == GuardFailed()
    assert (await runs.get(R)).state_json == '{"a":1}'
    assert await runs.transition_owned(R, A, RunStatus.CANCELLED, None, present) == Transitioned()
    assert (await runs.get(R)).cancel_requested_at_ms == 0


async def facts(kit):
    def read(tx):
        query = "SELECT kind, facts FROM belay_journal WHERE kind LIKE 'ownership.%%' ORDER BY entry"
        if kit.stores.runs._database.dialect.name == "sqlite":
            query = query.replace("%%", "%")
        return tx.exec_driver_sql(query.replace("%%", "%")).all()

    rows = await kit.stores.runs._database.read(read)
    told = [(kind.removeprefix("ownership."), json.loads(text)) for kind, text in rows]
    return [(kind, fact["owner"]["nonce"], fact["granted_at_ms"]) for kind, fact in told]


async def test_ownership_is_told_in_a_stream_of_its_own(kit, runs):
    await own(runs)
    kit.clock.set(30_001)
    assert await runs.claim_and_own(R, await runs.get(R), B, 30_001) == EvidenceRequired()
    assert await runs.claim_and_own(R, await runs.get(R), A, 30_001) == Activated()
    kit.clock.set(60_002)
    await runs.claim_and_own(R, await runs.get(R), B, 60_002, evidence(A, B, 60_002))
    await runs.heartbeat(R, B, 60_002)
    await runs.transition_owned(R, B, RunStatus.RUNNING)
    await runs.transition_owned(R, B, RunStatus.COMPLETED)
    assert await facts(kit) == [
        ("claimed", "owner-a", 0),
        ("activated", "owner-a", 0),
        ("released", "owner-a", None),
        ("claimed", "owner-a", 30_001),
        ("activated", "owner-a", 30_001),
        ("stolen", "owner-b", 60_002),
        ("activated", "owner-b", 60_002),
        ("released", "owner-b", None),
    ]
    assert [entry.kind for entry in await kit.engine.journal(R)] == ["created"]


@pytest.mark.parametrize(
    ("damage", "stage"),
    [
        ("status = 'not-a-status'", "row-schema"),
        ("created_at = -1", "row-schema"),
        ("heartbeat_at = 5", None),
        ("claim_host_id = 'x'", None),
        ("owner_host_id = 'x', owner_pid = 1, owner_nonce = 'n'", None),
    ],
)
async def test_a_damaged_row_is_an_error_that_says_what_is_wrong(kit, runs, raw, loosen, damage, stage):
    await runs.create(R, "{}")
    await loosen(kit.stores, "belay_runs")
    await raw(kit.stores, f"UPDATE belay_runs SET {damage}")  # noqa: S608
    error = await refused(runs.get(R), "decode_failed")
    assert error.cause.get("stage") == stage
    assert error.cause["run_id"] == R


async def test_a_state_that_is_no_json_is_an_error(kit, runs, raw):
    await runs.create(R, "{}")
    await raw(kit.stores, "UPDATE belay_run_values SET state = 'not-json'")
    error = await refused(runs.get(R), "decode_failed")
    assert error.cause["state_json_valid"] is False


async def test_a_lease_of_the_engine_is_fenced_by_the_contract_too(kit, runs):
    lease = await kit.own()
    assert await runs.heartbeat(R, lease.owner, 0) == Updated()
    assert await runs.transition_owned(R, lease.owner, RunStatus.RUNNING, "1") == Transitioned()
    assert type(await kit.record(lease, kit.step())).__name__ == "Recorded"
    kit.clock.set(30_001)
    taken = await runs.claim_and_own(
        R, await runs.get(R), B, 30_001, LivenessEvidence(lease.owner, 30_001, "lease-expired")
    )
    assert taken == Activated()
    assert await kit.record(lease, kit.step("b#1")) == FenceLost()
    assert (await kit.run()).epoch == 2
