"""AttemptStore: the contract's attempts, each written under its run's owner."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from belay_core.errors import AttemptStoreError
from belay_core.ids import RunId
from belay_core.outcomes.attempts import (
    Conflict,
    ExistingSame,
    Finished,
    Inserted,
    Patched,
    RunNotFound,
    StateChanged,
    Upserted,
)
from belay_core.outcomes.runs import Activated, FenceLost, NotFound, Transitioned, Updated
from belay_core.records.attempt import (
    ABSENT,
    Attempt,
    AttemptId,
    AttemptPatch,
    AttemptStoreOptions,
    FinishAttempt,
)
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunSnapshot, RunStatus

A = OwnerId("host-a", 101, "owner-a")
B = OwnerId("host-a", 202, "owner-b")
R = RunId("run-1")
ID = AttemptId(R, "digest", 1)
RUNNING = Attempt(R, "digest", 1, "running", 5, {"step": "fetch"})


def finish(state="completed", at=9, **more):
    return FinishAttempt(R, "digest", 1, state, at, **more)


@pytest.fixture
async def attempts(kit):
    kit.clock.set(0.0)
    await kit.stores.runs.create(R, "{}")
    assert await kit.stores.runs.claim_and_own(R, RunSnapshot(RunStatus.PENDING), A, 0) == Activated()
    return kit.stores.attempts


async def refused(call, code="invalid_attempt") -> Any:
    with pytest.raises(AttemptStoreError) as failure:
        await call
    assert failure.value.code == code
    return failure.value


async def test_an_attempt_reads_back_equal_and_what_was_absent_is_absent(attempts):
    stored = replace(RUNNING, heartbeat_at_ms=11, checkpoint={"cursor": 2}, meta={"a": [1, {"b": None}], "ü": 1.5})
    assert await attempts.put(stored, A) == Inserted()
    found = await attempts.get(ID)
    assert found == stored
    assert (found.finished_at_ms, found.error, found.outcome) == (None, ABSENT, ABSENT)
    assert await attempts.get(stored) == stored
    assert await attempts.get(AttemptId(R, "digest", 2)) is None


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
async def test_empty_values_are_values(attempts, value):
    stored = replace(RUNNING, checkpoint=value, error=value, outcome=value, meta=value)
    await attempts.put(stored, A)
    found = await attempts.get(ID)
    assert [found.checkpoint, found.error, found.outcome, found.meta] == [value] * 4


async def test_the_same_attempt_again_is_existing_and_any_other_a_conflict(attempts):
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


async def test_the_first_end_stands(attempts):
    assert await attempts.finish(finish(), A) == NotFound()
    await attempts.put(RUNNING, A)
    assert await attempts.finish(finish(), B) == FenceLost()
    assert await attempts.finish(finish(outcome="first"), A) == Finished()
    assert await attempts.finish(finish(outcome="second"), A) == StateChanged()
    assert await attempts.finish(finish(outcome="first"), A) == StateChanged()
    found = await attempts.get(ID)
    assert (found.state, found.finished_at_ms, found.outcome) == ("completed", 9, "first")


async def test_what_an_end_leaves_out_keeps_its_value(attempts):
    await attempts.put(replace(RUNNING, outcome=1, error=2), A)
    await attempts.finish(finish("failed"), A)
    found = await attempts.get(ID)
    assert (found.outcome, found.error, found.meta) == (1, 2, {"step": "fetch"})


async def test_what_an_end_says_replaces_what_was_there(attempts):
    await attempts.put(replace(RUNNING, outcome=1, error=2), A)
    await attempts.finish(finish("failed", outcome=None, error={"e": 1}, meta=[]), A)
    found = await attempts.get(ID)
    assert (found.outcome, found.error, found.meta) == (None, {"e": 1}, [])


async def test_an_attempt_may_be_stored_ended_and_then_never_changes(attempts):
    ended = replace(RUNNING, state="completed", finished_at_ms=9)
    assert await attempts.put(ended, A) == Inserted()
    assert await attempts.finish(finish("failed"), A) == StateChanged()
    assert await attempts.put(RUNNING, A) == Conflict()


async def test_only_the_owner_of_a_run_that_is_there_stores_attempts(kit, attempts):
    assert await attempts.put(RUNNING, B) == FenceLost()
    assert await attempts.put(replace(RUNNING, run_id=RunId("nowhere")), A) == RunNotFound()
    await attempts.put(RUNNING, A)
    await kit.stores.runs.transition_owned(R, A, RunStatus.SUSPENDED)
    assert await attempts.put(RUNNING, A) == FenceLost()
    assert await attempts.finish(finish(), A) == FenceLost()
    assert await attempts.get(ID) == RUNNING


async def test_after_a_takeover_only_the_new_owner_finishes(kit, attempts):
    await attempts.put(RUNNING, A)
    kit.clock.set(30_001)
    proof = LivenessEvidence(A, 30_001, "same-host-pid-dead")
    await kit.stores.runs.claim_and_own(R, await kit.stores.runs.get(R), B, 30_001, proof)
    answers = await asyncio.gather(attempts.finish(finish(outcome="a"), A), attempts.finish(finish(outcome="b"), B))
    assert list(answers) == [FenceLost(), Finished()]
    assert (await attempts.get(ID)).outcome == "b"


async def test_finishing_beside_the_end_of_the_run_is_either_done_or_lost(kit, attempts):
    await attempts.put(RUNNING, A)
    ended, finished = await asyncio.gather(
        kit.stores.runs.transition_owned(R, A, RunStatus.COMPLETED), attempts.finish(finish(), A)
    )
    assert ended == Transitioned()
    state = (await attempts.get(ID)).state
    assert (finished, state) in [(Finished(), "completed"), (FenceLost(), "running")]


async def test_bad_identities_are_refused_in_each_operations_own_words(attempts):
    said = {
        "get": await refused(attempts.get(AttemptId(R, "d", -1))),
        "put": await refused(attempts.put(replace(RUNNING, attempt=-1), A)),
        "finish": await refused(attempts.finish(replace(finish(), attempt=-1), A)),
    }
    assert {method: str(error) for method, error in said.items()} == {
        "get": "invalid_attempt: AttemptStore.get: attempt identity violates the durable identifier contract",
        "put": "invalid_attempt: AttemptStore.put: attempt violates the persistence contract",
        "finish": "invalid_attempt: AttemptStore.finish: finished attempt violates the contract",
    }
    assert {error.cause for error in said.values()} == {None}


class Shifty(OwnerId):
    pass


@pytest.mark.parametrize(
    "owner",
    [
        None,
        "owner",
        {"host_id": "h", "pid": 1, "nonce": "n", "more": 1},
        {"host_id": "h", "pid": 1},
        OwnerId("h", -1, "n"),
        OwnerId("h", cast("Any", 1.5), "n"),
        OwnerId("", 1, "n"),
        Shifty("host-a", 101, "owner-a"),
    ],
)
async def test_a_bad_owner_is_refused_before_anything_else(attempts, owner):
    bad_too = replace(RUNNING, attempt=-1)
    assert "owner" in str(await refused(attempts.put(bad_too, owner)))
    assert "owner" in str(await refused(attempts.finish(finish("running"), owner)))
    assert await attempts.get(ID) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"meta": float("nan"), "attempt": -1}, "meta contains a non-finite number"),
        ({"meta": {1: 2}}, "meta contains an unbounded or ill-formed object key"),
        ({"outcome": (1,)}, "outcome contains a non-JSON tuple"),
        ({"outcome": {"a": {1, 2}}}, "outcome contains a non-JSON set"),
        ({"error": "\ud800"}, "error contains unbounded or ill-formed text"),
        ({"error": 2**53}, "error contains an integer beyond 2^53 - 1"),
        ({"checkpoint": "x" * (1024 * 1024 - 1)}, "checkpoint exceeds the JSON byte limit"),
        ({"state": ""}, "attempt violates the persistence contract"),
        ({"step_key_digest": "x\0"}, "attempt violates the persistence contract"),
        ({"started_at_ms": -1}, "attempt violates the persistence contract"),
        ({"finished_at_ms": 1.0}, "attempt violates the persistence contract"),
        ({"heartbeat_at_ms": True}, "attempt violates the persistence contract"),
    ],
)
async def test_what_cannot_be_stored_is_refused_with_the_field_and_the_rule(attempts, change, said):
    error = await refused(attempts.put(replace(RUNNING, **change), A))
    assert str(error) == f"invalid_attempt: AttemptStore.put: {said}"
    assert await attempts.get(ID) is None


async def test_a_checkpoint_may_be_exactly_as_long_as_allowed(attempts):
    assert await attempts.put(replace(RUNNING, checkpoint="x" * (1024 * 1024 - 2)), A) == Inserted()


async def test_attempts_are_taken_as_plain_dictionaries_too(attempts):
    given = {"run_id": R, "step_key_digest": "digest", "attempt": 1, "state": "running", "started_at_ms": 5, "meta": 1}
    assert await attempts.put(given, A) == Inserted()
    assert (await attempts.get({**given, "anything": "else"})).meta == 1
    assert str(await refused(attempts.put({**given, "more": 1}, A))).endswith("attempt must be an inert data record")
    del given["meta"]
    assert str(await refused(attempts.put(given, A))).endswith("attempt must be an inert data record")
    assert str(await refused(attempts.get("digest"))).endswith("attempt id must be an inert data record")
    assert str(await refused(attempts.finish(RUNNING, A))).endswith("finished attempt must be an inert data record")


async def test_an_end_that_is_none_is_refused(attempts):
    error = await refused(attempts.finish(finish("running"), A))
    assert str(error).endswith("finish requires a terminal state and valid timestamp")


@pytest.mark.parametrize("digest", ["漢" * 1_024, "sha256:x", "x" * 1_024])
async def test_long_digests_name_their_attempt(attempts, digest):
    stored = replace(RUNNING, step_key_digest=digest)
    assert await attempts.put(stored, A) == Inserted()
    assert await attempts.put(stored, A) == ExistingSame()
    assert await attempts.get(stored) == stored


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
async def test_a_damaged_row_is_an_error_that_names_the_column(kit, attempts, raw, loosen, damage, said):
    await attempts.put(RUNNING, A)
    await loosen(kit.stores, "belay_attempts")
    await raw(kit.stores, f"UPDATE belay_attempts SET {damage}")  # noqa: S608
    error = await refused(attempts.get(ID), "decode_failed")
    assert str(error) == f"decode_failed: AttemptStore.get: {said}"


async def test_a_failing_database_is_told_without_its_words(kit, attempts, raw):
    await raw(kit.stores, "DROP TABLE belay_attempts")
    error = await refused(attempts.get(ID), "persistence_failed")
    assert str(error) == "persistence_failed: AttemptStore.get: attempt persistence failed"
    assert set(error.cause) == {"category", "reason", "cause"}


async def test_an_attempt_of_the_contract_is_not_shown_to_an_engine(kit, attempts):
    await attempts.put(RUNNING, A)
    assert (await kit.history()).attempts == ()


async def test_68_a_heartbeat_keeps_the_later_stamp_and_the_last_checkpoint(attempts):
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


async def test_71_a_patch_replaces_values_and_never_clears_them(attempts):
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


async def test_76_an_upsert_replaces_what_is_in_progress_and_nothing_that_has_ended(attempts):
    upserting = attempts.make_with(AttemptStoreOptions(put_mode="upsert"))
    assert await upserting.put(replace(RUNNING, checkpoint=1, error="x"), A) == Inserted()
    assert await upserting.put(replace(RUNNING, started_at_ms=9, meta={"v": 2}), A) == Upserted()
    stored = await upserting.get(ID)
    assert (stored.started_at_ms, stored.meta, stored.checkpoint, stored.error) == (9, {"v": 2}, ABSENT, ABSENT)
    assert await upserting.put(RUNNING, B) == FenceLost()
    await upserting.finish(finish(), A)
    assert await upserting.put(RUNNING, A) == Conflict()


async def test_states_in_progress_are_the_stores_own(attempts):
    queueing = attempts.make_with({"in_progress_states": ["queued", "running"]})
    await queueing.put(replace(RUNNING, state="queued"), A)
    assert await queueing.heartbeat(R, "digest", 1, A, 9) == Updated()
    assert await attempts.heartbeat(R, "digest", 1, A, 9) == StateChanged()
    await refused(queueing.finish(finish("queued"), A))
    assert await queueing.finish(finish(), A) == Finished()


async def test_a_checkpoint_is_bounded_as_the_store_says(attempts):
    small = attempts.make_with({"max_checkpoint_bytes": 4})
    assert await small.put(replace(RUNNING, checkpoint="ab"), A) == Inserted()
    await refused(small.heartbeat(R, "digest", 1, A, 9, "abc"))
    await refused(small.patch(ID, AttemptPatch(checkpoint="abc"), A))
    await refused(small.put(replace(RUNNING, attempt=2, checkpoint="abc"), A))


@pytest.mark.parametrize(
    "options",
    [
        {"in_progress_states": []},
        {"in_progress_states": ["a", "a"]},
        {"in_progress_states": [""]},
        {"in_progress_states": "running"},
        {"max_checkpoint_bytes": 0},
        {"max_checkpoint_bytes": 1.5},
        {"max_checkpoint_bytes": 16 * 1024 * 1024 + 1},
        {"put_mode": "replace"},
        {"unknown": 1},
        "no record",
    ],
)
async def test_77_bad_options_are_refused_when_the_store_is_made(attempts, options):
    with pytest.raises(AttemptStoreError) as found:
        attempts.make_with(options)
    assert (found.value.code, found.value.method, found.value.cause) == ("invalid_attempt", "make_with", None)


async def test_79_80_what_breaks_a_rule_is_refused_in_fixed_words(attempts):
    failure = await refused(attempts.heartbeat(R, "digest", -1, A, 1))
    words = "attempt identity violates the durable identifier contract"
    assert str(failure) == f"invalid_attempt: AttemptStore.heartbeat: {words}"
    failure = await refused(attempts.patch(AttemptId(R, "digest", -1), AttemptPatch(), A))
    assert str(failure) == f"invalid_attempt: AttemptStore.patch: {words}"
    await refused(attempts.heartbeat(R, "digest", 1, A, -1))
    await refused(attempts.heartbeat(R, "digest", 1, A, 1, float("nan")))
    await refused(attempts.patch(ID, cast("Any", {"state": "x"}), A))
    await refused(attempts.patch(ID, AttemptPatch(meta=cast("Any", object())), A))
    await refused(attempts.patch(ID, AttemptPatch(), cast("Any", "owner")))
