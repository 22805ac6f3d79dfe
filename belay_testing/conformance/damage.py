"""Rows that no store wrote, and tables that are gone."""

from typing import Any

import pytest

from belay_core.errors import RunStoreError
from belay_core.records.owner import OwnerId
from belay_core.stores.run_contract import AlreadyClaimed, NotFound
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import ID, PENDING, RUNNING, A, B, R, own, refused, refused_attempt
from belay_testing.harness import Tamper


class DamageChapter(Chapter):
    """A damaged database is reported as damaged."""

    @case(7)
    async def test_a_missing_table_is_a_failure_of_persistence(self, runs: Any, tamper: Tamper) -> None:
        await tamper.drop("belay_run_values")
        error = await refused(runs.get(R), "persistence_failed")
        assert str(error) == "persistence_failed: RunStore.get: database operation failed"
        await refused(runs.create(R, "{}"), "persistence_failed")

    @case(17)
    async def test_a_deleted_run_and_a_reserved_one_are_reported_before_evidence_is_asked_for(
        self, runs: Any, tamper: Tamper
    ) -> None:
        await own(runs)
        read = (await runs.get(R)).snapshot
        claim = "claim_host_id = 'host-b', claim_pid = 1, claim_nonce = 'n', claimed_at = 0"
        await tamper.run(f"UPDATE belay_runs SET {claim}")  # noqa: S608
        assert await runs.claim_and_own(R, read, B, 0) == AlreadyClaimed()
        assert (await runs.get(R)).claim == OwnerId("host-b", 1, "n")
        await tamper.run("DELETE FROM belay_run_values", "DELETE FROM belay_runs")
        assert await runs.claim_and_own(R, read, B, 0) == NotFound()
        assert await runs.claim_and_own(R, PENDING, B, 0) == NotFound()

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
    async def test_a_damaged_row_is_an_error_that_says_what_is_wrong(
        self, runs: Any, tamper: Tamper, damage: Any, stage: Any
    ) -> None:
        await runs.create(R, "{}")
        await tamper.loosen("belay_runs")
        await tamper.run(f"UPDATE belay_runs SET {damage}")  # noqa: S608
        error = await refused(runs.get(R), "decode_failed")
        assert error.cause.get("stage") == stage
        assert error.cause["run_id"] == R

    async def test_a_state_that_is_no_json_is_an_error(self, runs: Any, tamper: Tamper) -> None:
        await runs.create(R, "{}")
        await tamper.run("UPDATE belay_run_values SET state = 'not-json'")
        error = await refused(runs.get(R), "decode_failed")
        assert error.cause["state_json_valid"] is False

    @case(82)
    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            ("state = ''", "could not decode belay_attempts row"),
            ("started_at = -1", "could not decode belay_attempts row"),
            ("finished_at = -1", "could not decode belay_attempts row"),
            ("meta = 'not-json'", "meta must be valid JSON text"),
            ("checkpoint = '[1e999]'", "checkpoint contains a non-finite number"),
            ("error = ''", "error must be non-empty JSON text"),
        ],
    )
    async def test_a_damaged_row_is_an_error_that_names_the_column(
        self, attempts: Any, tamper: Tamper, damage: Any, said: Any
    ) -> None:
        await attempts.put(RUNNING, A)
        await tamper.loosen("belay_attempts")
        await tamper.run(f"UPDATE belay_attempts SET {damage}")  # noqa: S608
        error = await refused_attempt(attempts.get(ID), "decode_failed")
        assert str(error) == f"decode_failed: AttemptStore.get: {said}"

    @case(82)
    async def test_a_failing_database_is_reported_without_its_text(self, attempts: Any, tamper: Tamper) -> None:
        await tamper.drop("belay_attempts")
        error = await refused_attempt(attempts.get(ID), "persistence_failed")
        assert str(error) == "persistence_failed: AttemptStore.get: attempt persistence failed"
        assert set(error.cause) == {"category", "reason", "cause"}

    @case(50)
    async def test_a_status_that_is_none_is_a_damaged_row(self, runs: Any, tamper: Tamper) -> None:
        await runs.create(R, "{}")
        await tamper.loosen("belay_runs")
        await tamper.run("UPDATE belay_runs SET status = 'not-a-status', cancel_requested_at = 1")
        with pytest.raises(RunStoreError) as found:
            await runs.request_cancel(R, 2)
        assert (found.value.code, found.value.method) == ("decode_failed", "request_cancel")
