"""A parameter that breaks a rule is refused by its name, before anything is read."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from belay_core.errors import RunStoreError
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import PENDING, A, B, R, evidence, own, refused


class Trap:
    """Its fields must never be read."""

    status = "pending"
    owner = None

    @property
    def heartbeat_at_ms(self) -> int:
        raise AssertionError("read")


class Sub(OwnerId):
    """An owner whose fields may read differently the second time."""


class BoundaryChapter(Chapter):
    """Parameters of the run store."""

    @case(29, 40)
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
    async def test_a_claim_with_a_bad_parameter_is_refused_and_names_it(
        self, runs: Any, change: Any, field: Any
    ) -> None:
        await runs.create(R, "{}")
        given = {"run_id": R, "expected": PENDING, "owner": A, "now_ms": 0, "evidence": None, **change}
        error = await refused(runs.claim_and_own(**given))
        assert error.cause["field"] == field
        assert (await runs.get(R)).status is RunStatus.PENDING

    @case(35, 41)
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
    async def test_a_bad_transition_is_refused_and_the_run_goes_on(self, runs: Any, change: Any) -> None:
        await own(runs)
        given = {"run_id": R, "owner": A, "to_status": RunStatus.FAILED, **change}
        await refused(runs.transition_owned(**given))
        await refused(runs.transition_owned(**{**given, "run_id": change.get("run_id", "nowhere")}))
        assert (await runs.get(R)).status is RunStatus.RUNNING

    @case(40, 41)
    @pytest.mark.parametrize(
        ("operation", "given", "field"),
        [
            ("claim", ("", PENDING, A, 0), "run_id"),
            ("claim", (R, None, A, 0), "expected"),
            (
                "claim",
                (R, {"status": "unknown", "owner": None, "heartbeat_at_ms": None}, A, 0),
                "expected",
            ),
            ("claim", (R, PENDING, None, 0), "claimant"),
            ("claim", (R, PENDING, A, 1.5), "now_ms"),
            ("claim", (R, PENDING, A, 10_001), "now_ms"),
            ("activate", (R, A, -1, PENDING), "claimed_at_ms"),
            ("abandon_claim", (R, A, True), "claimed_at_ms"),
            ("recover_claim", (R, A, 0, "b", 0, evidence(A, B, 0)), "observer"),
            ("recover_claim", (R, A, 0, B, 0, None), "evidence"),
            ("steal", (R, PENDING, A, 0, {"kind": "x"}), "evidence"),
            ("reconfirm", (R, A, 2**53), "now_ms"),
        ],
    )
    async def test_what_breaks_a_rule_is_refused_by_name_and_changes_nothing(
        self, runs: Any, operation: str, given: Any, field: str
    ) -> None:
        await runs.create(R, "{}")
        before = await runs.get(R)
        with pytest.raises(RunStoreError) as found:
            await getattr(runs, operation)(*given)
        assert found.value.code == "invalid_run"
        assert found.value.cause is not None
        assert found.value.cause["field"] == field
        assert await runs.get(R) == before

    @case(58)
    @pytest.mark.parametrize("bad", ["", "\ud800", 1, None])
    async def test_a_bad_id_is_refused_everywhere(self, runs: Any, bad: Any) -> None:
        for call in (
            runs.lineage(bad),
            runs.latest_round(bad),
            runs.request_cancel_lineage(bad, 1),
            runs.acknowledge_cancel(bad, A, 1),
        ):
            with pytest.raises(RunStoreError, match="invalid_run"):
                await call

    @case(58)
    @pytest.mark.parametrize("bad", [-1, 0.5, float("nan"), float("inf"), 2**53, True])
    async def test_a_bad_moment_is_refused_and_nothing_is_asked(self, runs: Any, bad: Any) -> None:
        await runs.create(R, "{}")
        with pytest.raises(RunStoreError, match="invalid_run"):
            await runs.request_cancel_lineage(R, bad)
        assert (await runs.get(R)).cancel_requested_at_ms is None
