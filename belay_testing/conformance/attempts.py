"""Attempts are stored only by the owner of their run, and the first end of each is kept."""

from dataclasses import replace
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records.attempt import (
    ABSENT,
    AttemptId,
    AttemptPatch,
    AttemptStoreOptions,
)
from belay_core.records.owner import LivenessEvidence
from belay_core.records.run import RunStatus
from belay_core.stores.attempts import (
    Conflict,
    ExistingSame,
    Finished,
    Inserted,
    Patched,
    RunNotFound,
    StateChanged,
    Upserted,
)
from belay_core.stores.run_contract import FenceLost, NotFound, Transitioned, Updated
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import (
    ID,
    RUNNING,
    A,
    B,
    R,
    finish,
    refused_attempt,
    together,
)


class AttemptsChapter(Chapter):
    """The attempt store."""

    @case(65)
    async def test_an_attempt_reads_back_equal_and_what_was_absent_is_absent(self, attempts: Any) -> None:
        stored = replace(RUNNING, heartbeat_at_ms=11, checkpoint={"cursor": 2}, meta={"a": [1, {"b": None}], "ü": 1.5})
        assert await attempts.put(stored, A) == Inserted()
        found = await attempts.get(ID)
        assert found == stored
        assert (found.finished_at_ms, found.error, found.outcome) == (None, ABSENT, ABSENT)
        assert await attempts.get(stored) == stored
        assert await attempts.get(AttemptId(R, "digest", 2)) is None

    @pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
    async def test_empty_values_are_values(self, attempts: Any, value: Any) -> None:
        stored = replace(RUNNING, checkpoint=value, error=value, outcome=value, meta=value)
        await attempts.put(stored, A)
        found = await attempts.get(ID)
        assert [found.checkpoint, found.error, found.outcome, found.meta] == [value] * 4

    @case(67)
    async def test_the_same_attempt_again_is_existing_and_any_other_a_conflict(self, attempts: Any) -> None:
        stored = replace(RUNNING, meta={"a": {"x": 1, "y": [1, 2]}, "b": 1}, checkpoint=None)
        await attempts.put(stored, A)
        same = replace(stored, meta={"b": 1.0, "a": {"y": [1, 2], "x": 1}})
        assert await attempts.put(same, A) == ExistingSame()
        for other in (
            replace(stored, meta={"a": {"x": 1, "y": [2, 1]}, "b": 1}),
            replace(stored, meta={"a": {"x": 1, "y": [1, 2]}, "b": True}),
            replace(stored, meta={"a": {"x": 1, "y": [1, 2]}, "b": 1, "c": None}),
            replace(stored, checkpoint=ABSENT),
            replace(stored, error=None),
            replace(stored, state="failed"),
            replace(stored, started_at_ms=6),
            replace(stored, heartbeat_at_ms=6),
        ):
            assert await attempts.put(other, A) == Conflict()
        assert await attempts.get(ID) == stored

    @case(70)
    async def test_the_first_end_is_kept(self, attempts: Any) -> None:
        assert await attempts.finish(finish(), A) == NotFound()
        await attempts.put(RUNNING, A)
        assert await attempts.finish(finish(), B) == FenceLost()
        assert await attempts.finish(finish(outcome="first"), A) == Finished()
        assert await attempts.finish(finish(outcome="second"), A) == StateChanged()
        assert await attempts.finish(finish(outcome="first"), A) == StateChanged()
        found = await attempts.get(ID)
        assert (found.state, found.finished_at_ms, found.outcome) == ("completed", 9, "first")

    @case(71)
    async def test_what_an_end_leaves_out_keeps_its_value(self, attempts: Any) -> None:
        await attempts.put(replace(RUNNING, outcome=1, error=2), A)
        await attempts.finish(finish("failed"), A)
        found = await attempts.get(ID)
        assert (found.outcome, found.error, found.meta) == (1, 2, {"step": "fetch"})

    @case(71)
    async def test_what_an_end_says_replaces_what_was_there(self, attempts: Any) -> None:
        await attempts.put(replace(RUNNING, outcome=1, error=2), A)
        await attempts.finish(finish("failed", outcome=None, error={"e": 1}, meta=[]), A)
        found = await attempts.get(ID)
        assert (found.outcome, found.error, found.meta) == (None, {"e": 1}, [])

    async def test_an_attempt_may_be_stored_ended_and_then_never_changes(self, attempts: Any) -> None:
        ended = replace(RUNNING, state="completed", finished_at_ms=9)
        assert await attempts.put(ended, A) == Inserted()
        assert await attempts.finish(finish("failed"), A) == StateChanged()
        assert await attempts.put(RUNNING, A) == Conflict()

    async def test_only_the_owner_of_a_run_that_is_there_stores_attempts(self, kit: Kit, attempts: Any) -> None:
        assert await attempts.put(RUNNING, B) == FenceLost()
        assert await attempts.put(replace(RUNNING, run_id=RunId("nowhere")), A) == RunNotFound()
        await attempts.put(RUNNING, A)
        await kit.stores.runs.transition_owned(R, A, RunStatus.SUSPENDED)
        assert await attempts.put(RUNNING, A) == FenceLost()
        assert await attempts.finish(finish(), A) == FenceLost()
        assert await attempts.get(ID) == RUNNING

    @case(73)
    async def test_after_a_takeover_only_the_new_owner_finishes(self, kit: Kit, attempts: Any) -> None:
        await attempts.put(RUNNING, A)
        kit.clock.set(30_001)
        proof = LivenessEvidence(A, 30_001, "same-host-pid-dead")
        await kit.stores.runs.claim_and_own(R, await kit.stores.runs.get(R), B, 30_001, proof)
        ends = attempts.finish(finish(outcome="a"), A), attempts.finish(finish(outcome="b"), B)
        assert await together(*ends) == [FenceLost(), Finished()]
        assert (await attempts.get(ID)).outcome == "b"

    @case(74)
    async def test_finishing_while_the_run_ends_is_either_done_or_lost(self, kit: Kit, attempts: Any) -> None:
        await attempts.put(RUNNING, A)
        ended, finished = await together(
            kit.stores.runs.transition_owned(R, A, RunStatus.COMPLETED), attempts.finish(finish(), A)
        )
        assert ended == Transitioned()
        state = (await attempts.get(ID)).state
        assert (finished, state) in [(Finished(), "completed"), (FenceLost(), "running")]

    @case(68)
    async def test_a_heartbeat_keeps_the_later_stamp_and_the_last_checkpoint(self, attempts: Any) -> None:
        await attempts.put(RUNNING, A)
        assert await attempts.heartbeat(R, "digest", 1, A, 12, {"cursor": 2}) == Updated()
        assert await attempts.heartbeat(R, "digest", 1, A, 11) == Updated()
        assert await attempts.heartbeat(R, "digest", 1, A, 13) == Updated()
        stored = await attempts.get(ID)
        assert (stored.heartbeat_at_ms, stored.checkpoint) == (13, {"cursor": 2})
        assert await attempts.heartbeat(R, "digest", 1, A, 14, None) == Updated()
        assert (await attempts.get(ID)).checkpoint is None
        assert await attempts.heartbeat(R, "other", 1, B, 14) == NotFound()
        assert await attempts.heartbeat(R, "digest", 1, B, 14) == FenceLost()
        await attempts.finish(finish(), A)
        assert await attempts.heartbeat(R, "digest", 1, A, 15) == StateChanged()

    @case(71)
    async def test_a_patch_replaces_values_and_never_clears_them(self, attempts: Any) -> None:
        await attempts.put(replace(RUNNING, outcome="draft", error={"n": 1}), A)
        assert await attempts.patch(ID, AttemptPatch(outcome="better"), A) == Patched()
        assert await attempts.patch(ID, AttemptPatch(), A) == Patched()
        await attempts.finish(finish(), A)
        stored = await attempts.get(ID)
        assert (stored.outcome, stored.error, stored.meta) == ("better", {"n": 1}, {"step": "fetch"})
        assert await attempts.patch(stored, AttemptPatch(meta={"late": True}), A) == Patched()
        assert (await attempts.get(ID)).meta == {"late": True}
        assert await attempts.patch(AttemptId(R, "other", 1), AttemptPatch(), B) == NotFound()
        assert await attempts.patch(ID, AttemptPatch(), B) == FenceLost()

    @case(76)
    async def test_an_upsert_replaces_what_is_in_progress_and_nothing_that_has_ended(self, attempts: Any) -> None:
        upserting = attempts.make_with(AttemptStoreOptions(put_mode="upsert"))
        assert await upserting.put(replace(RUNNING, checkpoint=1, error="x"), A) == Inserted()
        assert await upserting.put(replace(RUNNING, started_at_ms=9, meta={"v": 2}), A) == Upserted()
        stored = await upserting.get(ID)
        assert (stored.started_at_ms, stored.meta, stored.checkpoint, stored.error) == (9, {"v": 2}, ABSENT, ABSENT)
        assert await upserting.put(RUNNING, B) == FenceLost()
        await upserting.finish(finish(), A)
        assert await upserting.put(RUNNING, A) == Conflict()

    async def test_states_in_progress_are_the_stores_own(self, attempts: Any) -> None:
        queueing = attempts.make_with({"in_progress_states": ["queued", "running"]})
        await queueing.put(replace(RUNNING, state="queued"), A)
        assert await queueing.heartbeat(R, "digest", 1, A, 9) == Updated()
        assert await attempts.heartbeat(R, "digest", 1, A, 9) == StateChanged()
        await refused_attempt(queueing.finish(finish("queued"), A))
        assert await queueing.finish(finish(), A) == Finished()
