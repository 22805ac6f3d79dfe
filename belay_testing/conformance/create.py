"""Runs are created atomically, once, and read back as they were given."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from belay_core.errors import DatabaseError
from belay_core.ids import RunId
from belay_core.records.run import CreateOptions, RunRow, RunStatus
from belay_core.stores.run_contract import Transitioned
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import A, R, own, refused


class CreateChapter(Chapter):
    """``create`` and ``get``."""

    @case(1)
    async def test_a_created_run_reads_back_with_nothing_but_its_state(self, runs: Any) -> None:
        await runs.create(R, '{"cursor":1}')
        row = await runs.get(R)
        names = {field.name for field in fields(RunRow)}
        said = {name: value for name in names if (value := getattr(row, name)) is not None}
        assert said == {"run_id": R, "status": "pending", "created_at_ms": 0, "state_json": '{"cursor":1}'}

    @pytest.mark.parametrize(
        "state", [' {"b":1,\n "a" : 1.0e2} ', '"\\u0000"', "[12345678901234567890123]", '{"a":1,"a":2}']
    )
    async def test_the_state_is_kept_to_the_byte(self, runs: Any, state: Any) -> None:
        await runs.create(R, state)
        assert (await runs.get(R)).state_json == state

    @case(2)
    async def test_a_clock_between_two_milliseconds_stamps_the_earlier(self, kit: Kit, runs: Any) -> None:
        kit.clock.set(10.5)
        await own(runs, now=10)
        kit.clock.set(11.5)
        assert await runs.transition_owned(R, A, RunStatus.COMPLETED) == Transitioned()
        row = await runs.get(R)
        assert (row.created_at_ms, row.started_at_ms, row.finished_at_ms) == (10, 10, 11)

    @case(4)
    async def test_what_no_database_could_keep_is_refused_before_anything_is_stored(self, runs: Any) -> None:
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

    @case(8)
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
    async def test_ancestry_is_whole_or_refused(self, runs: Any, options: Any) -> None:
        error = await refused(runs.create(R, "{}", options))
        assert error.cause["field"] == "options"
        await refused(runs.get(R), "not_found_row")

    @case(8)
    async def test_names_of_companion_streams_are_no_run_ids(self, runs: Any) -> None:
        error = await refused(runs.create(RunId("flows.companion/run-store/" + "0" * 64), "{}"))
        assert error.cause == {"field": "run_id", "detail": "names a reserved journal companion stream"}

    async def test_the_cause_of_a_refused_state_names_the_run_and_never_the_text(self, runs: Any) -> None:
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

    @case(5)
    async def test_a_known_id_an_unknown_parent_and_a_taken_round_are_constraints(self, runs: Any) -> None:
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

    async def test_a_child_names_its_parent_and_long_names_come_back_whole(self, runs: Any) -> None:
        parent, lineage = RunId("漢" * 1_024), "sha256:looks-hashed"
        await runs.create(parent, "{}", CreateOptions(lineage_id=lineage, round_ordinal=0))
        await runs.create(RunId("kid"), "{}", CreateOptions(parent_run_id=parent))
        assert (await runs.get(parent)).lineage_id == lineage
        assert (await runs.get(RunId("kid"))).parent_run_id == parent
