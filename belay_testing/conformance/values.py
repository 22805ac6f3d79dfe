"""Data comes back unchanged, and what is no data is refused by every store with the same message."""

from dataclasses import replace
from typing import Any, Final

import pytest

from belay_core.errors import AttemptStoreError, RunStoreError
from belay_core.records.attempt import ABSENT, AttemptId, AttemptPatch, FinishAttempt
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.stores.attempts import Conflict, ExistingSame, Finished, Inserted
from belay_core.stores.run_contract import Transitioned, Updated
from belay_core.values import json
from belay_core.values.text import is_durable
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.hostile_values import TEXTS, HostileValues
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import PENDING, RUNNING, A, R, finish, refused, refused_attempt

TOGETHER: Final = 50
"""Values stored in one call, so that many can be tried."""
FIELDS: Final = ("checkpoint", "error", "outcome", "meta")


class ValuesChapter(Chapter):
    """Hostile text, numbers, records and JSON."""

    async def test_whatever_is_data_comes_back_equal_in_value_and_type(self, attempts: Any, belay_values: int) -> None:
        hostile = HostileValues("values")
        for number in range(1, belay_values // (4 * TOGETHER) + 2):
            given: Any = {name: list(hostile.values(TOGETHER)) for name in FIELDS}
            stored = replace(RUNNING, attempt=number, **given)
            assert await attempts.put(stored, A) == Inserted()
            found = await attempts.get(AttemptId(R, "digest", number))
            for name in FIELDS:
                assert repr(getattr(found, name)) == repr(given[name])
            assert await attempts.put(found, A) == ExistingSame()

    async def test_whatever_is_no_data_is_refused_in_fixed_words(self, attempts: Any, belay_values: int) -> None:
        for number, value in enumerate(HostileValues("refused").refused(belay_values)):
            name = FIELDS[number % len(FIELDS)]
            error = await refused_attempt(attempts.put(replace(RUNNING, **{name: value}), A))
            assert error.detail == f"{name} {json.complaint(value)}"
            assert (error.cause, error.__context__) == (None, None)
        assert await attempts.get(AttemptId(R, "digest", 1)) is None

    async def test_a_value_comes_back_whichever_call_stored_it(self, attempts: Any) -> None:
        values = list(HostileValues("calls").values(TOGETHER))
        await attempts.put(RUNNING, A)
        assert await attempts.heartbeat(R, "digest", 1, A, 9, values) == Updated()
        await attempts.patch(AttemptId(R, "digest", 1), AttemptPatch(error=values), A)
        assert await attempts.finish(finish(outcome=values, meta=values), A) == Finished()
        found = await attempts.get(AttemptId(R, "digest", 1))
        assert {repr(getattr(found, name)) for name in FIELDS} == {repr(values)}

    async def test_values_that_python_takes_for_equal_are_distinguished(self, attempts: Any) -> None:
        pairs: list[tuple[Any, Any]] = [(True, 1), (False, 0), ({"a": True}, {"a": 1}), (None, ABSENT)]
        for number, (one, other) in enumerate(pairs, 1):
            stored = replace(RUNNING, attempt=number, outcome=one)
            assert await attempts.put(stored, A) == Inserted()
            assert await attempts.put(replace(stored, outcome=other), A) == Conflict()
            assert repr((await attempts.get(AttemptId(R, "digest", number))).outcome) == repr(one)

    async def test_a_stored_value_does_not_change_with_the_object_it_came_from(self, attempts: Any) -> None:
        given: Any = {"list": [1], "dict": {}}
        await attempts.put(replace(RUNNING, meta=given), A)
        given["list"].append(2)
        found = await attempts.get(AttemptId(R, "digest", 1))
        assert found.meta == {"list": [1], "dict": {}}
        found.meta["dict"]["x"] = 1
        assert (await attempts.get(AttemptId(R, "digest", 1))).meta == {"list": [1], "dict": {}}

    async def test_texts_name_runs_owners_and_steps_or_are_refused(
        self, kit: Kit, runs: Any, belay_values: int
    ) -> None:
        hostile = HostileValues("texts")
        texts = {*TEXTS, *(hostile.text(40) for _ in range(min(belay_values // 10, 200)))}
        for text in sorted(texts):
            owner = OwnerId(text, 1, text)
            if not is_durable(text):
                await refused(runs.create(text, "{}"))
                await refused(runs.claim_and_own(R, PENDING, owner, 0))
                continue
            await runs.create(text, "{}", {"lineage_id": text, "round_ordinal": 0})
            await runs.claim_and_own(text, PENDING, owner, 0)
            row = await runs.get(text)
            assert (row.run_id, row.owner, row.lineage_id) == (text, owner, text)
            stored = replace(RUNNING, run_id=row.run_id, step_key_digest=text, state=text)
            assert await kit.stores.attempts.put(stored, owner) == Inserted()
            assert await kit.stores.attempts.get(AttemptId(row.run_id, text, 1)) == stored

    @pytest.mark.parametrize("number", [0, 1, 2**31, 2**53 - 1])
    async def test_whole_numbers_of_every_size_are_kept(self, kit: Kit, runs: Any, number: int) -> None:
        kit.clock.set(float(number))
        owner = OwnerId("h", number, "n")
        await runs.create(R, "{}", {"lineage_id": "l", "round_ordinal": number})
        await runs.claim_and_own(R, PENDING, owner, number)
        row = await runs.get(R)
        assert (row.owner, row.heartbeat_at_ms, row.round_ordinal, row.created_at_ms) == (owner, *[number] * 3)
        stored = replace(RUNNING, attempt=number, started_at_ms=number, heartbeat_at_ms=number)
        assert await kit.stores.attempts.put(stored, owner) == Inserted()
        assert await kit.stores.attempts.finish(FinishAttempt(R, "digest", number, "done", number), owner) == Finished()
        found = await kit.stores.attempts.get(AttemptId(R, "digest", number))
        assert found == replace(stored, state="done", finished_at_ms=number)

    async def test_a_state_is_kept_to_the_byte_or_refused(self, runs: Any, belay_values: int) -> None:
        await runs.create(R, "{}")
        await runs.claim_and_own(R, PENDING, A, 0)
        hostile = HostileValues("states")
        for value in hostile.values(min(belay_values // 10, 200)):
            for state in (json.encode(value), f" {json.encode([value])} ", hostile.text()):
                if json.text_complaint(state) is None:
                    assert await runs.transition_owned(R, A, RunStatus.RUNNING, state) == Transitioned()
                    assert (await runs.get(R)).state_json == state
                else:
                    error = await refused(runs.transition_owned(R, A, RunStatus.RUNNING, state))
                    assert error.cause["detail"] == json.text_complaint(state)

    async def test_an_error_holds_nothing_of_what_was_refused(self, runs: Any, attempts: Any) -> None:
        canary = "tweet-tweet-4711"
        bad = f"{canary}\ud800"
        no_data: Any = {canary: {canary}}
        calls: list[Any] = [
            runs.get(bad),
            runs.create(R, f'{{"{canary}":'),
            runs.create(bad, "{}", {"parent_run_id": bad, canary: canary}),
            runs.claim_and_own(R, {"status": canary, "owner": None, "heartbeat_at_ms": None}, A, 0),
            runs.heartbeat(R, OwnerId(bad, 1, canary), 0),
            runs.transition_owned(R, A, canary),
            runs.steal(R, PENDING, A, 0, {"kind": canary}),
            attempts.put(replace(RUNNING, meta=no_data), A),
            attempts.put(replace(RUNNING, state=bad), A),
            attempts.get({"run_id": bad, "step_key_digest": canary, "attempt": 1}),
            attempts.patch(AttemptId(R, "digest", 1), {canary: canary}, A),
        ]
        for call in calls:
            with pytest.raises((RunStoreError, AttemptStoreError)) as failure:
                await call
            reported = [str(failure.value), repr(failure.value), repr(dict(failure.value.cause or {}))]
            assert canary not in "".join(reported)
            assert failure.value.__cause__ is None
            assert failure.value.__context__ is None
