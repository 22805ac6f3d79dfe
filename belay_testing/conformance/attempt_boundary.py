"""What an attempt store refuses, and with which message."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from belay_core.errors import AttemptStoreError
from belay_core.records.attempt import (
    AttemptId,
    AttemptPatch,
)
from belay_core.records.owner import OwnerId
from belay_core.stores.attempts import ExistingSame, Inserted, Patched
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import (
    ID,
    RUNNING,
    A,
    R,
    finish,
    refused_attempt,
)


def nested(depth: int, innermost: Any) -> Any:
    """A value inside ``depth`` arrays."""
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


def looped() -> list[Any]:
    """An array that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


class InheritedId(AttemptId):
    """An id whose fields are inherited."""


class OwnerSubclass(OwnerId):
    """An owner whose fields may read differently the second time."""


class AttemptBoundaryChapter(Chapter):
    """Parameters of the attempt store."""

    @case(79)
    async def test_bad_identities_are_refused_in_each_operations_own_words(self, attempts: Any) -> None:
        said = {
            "get": await refused_attempt(attempts.get(AttemptId(R, "d", -1))),
            "put": await refused_attempt(attempts.put(replace(RUNNING, attempt=-1), A)),
            "finish": await refused_attempt(attempts.finish(replace(finish(), attempt=-1), A)),
        }
        assert {method: str(error) for method, error in said.items()} == {
            "get": "invalid_attempt: AttemptStore.get: attempt identity violates the durable identifier contract",
            "put": "invalid_attempt: AttemptStore.put: attempt violates the persistence contract",
            "finish": "invalid_attempt: AttemptStore.finish: finished attempt violates the contract",
        }
        assert {error.cause for error in said.values()} == {None}

    @case(80)
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
            OwnerSubclass("host-a", 101, "owner-a"),
        ],
    )
    async def test_a_bad_owner_is_refused_before_anything_else(self, attempts: Any, owner: Any) -> None:
        bad_too = replace(RUNNING, attempt=-1)
        assert "owner" in str(await refused_attempt(attempts.put(bad_too, owner)))
        assert "owner" in str(await refused_attempt(attempts.finish(finish("running"), owner)))
        assert "owner" in str(await refused_attempt(attempts.heartbeat("", "", -1, owner, -1)))
        assert "owner" in str(await refused_attempt(attempts.patch("no id", "no patch", owner)))
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
    async def test_what_cannot_be_stored_is_refused_with_the_field_and_the_rule(
        self, attempts: Any, change: Any, said: Any
    ) -> None:
        error = await refused_attempt(attempts.put(replace(RUNNING, **change), A))
        assert str(error) == f"invalid_attempt: AttemptStore.put: {said}"
        assert await attempts.get(ID) is None

    async def test_a_checkpoint_may_be_exactly_as_long_as_allowed(self, attempts: Any) -> None:
        assert await attempts.put(replace(RUNNING, checkpoint="x" * (1024 * 1024 - 2)), A) == Inserted()

    async def test_attempts_are_taken_as_plain_dictionaries_too(self, attempts: Any) -> None:
        given = {
            "run_id": R,
            "step_key_digest": "digest",
            "attempt": 1,
            "state": "running",
            "started_at_ms": 5,
            "meta": 1,
        }
        assert await attempts.put(given, A) == Inserted()
        assert (await attempts.get({**given, "anything": "else"})).meta == 1
        assert str(await refused_attempt(attempts.put({**given, "more": 1}, A))).endswith(
            "attempt must be an inert data record"
        )
        del given["meta"]
        assert str(await refused_attempt(attempts.put(given, A))).endswith("attempt must be an inert data record")
        assert str(await refused_attempt(attempts.get("digest"))).endswith("attempt id must be an inert data record")
        assert str(await refused_attempt(attempts.finish(RUNNING, A))).endswith(
            "finished attempt must be an inert data record"
        )

    async def test_an_end_that_is_none_is_refused(self, attempts: Any) -> None:
        error = await refused_attempt(attempts.finish(finish("running"), A))
        assert str(error).endswith("finish requires a terminal state and valid timestamp")

    @pytest.mark.parametrize("digest", ["漢" * 1_024, "sha256:x", "x" * 1_024])
    async def test_long_digests_name_their_attempt(self, attempts: Any, digest: Any) -> None:
        stored = replace(RUNNING, step_key_digest=digest)
        assert await attempts.put(stored, A) == Inserted()
        assert await attempts.put(stored, A) == ExistingSame()
        assert await attempts.get(stored) == stored

    async def test_a_checkpoint_is_bounded_as_the_store_says(self, attempts: Any) -> None:
        small = attempts.make_with({"max_checkpoint_bytes": 4})
        assert await small.put(replace(RUNNING, checkpoint="ab"), A) == Inserted()
        await refused_attempt(small.heartbeat(R, "digest", 1, A, 9, "abc"))
        await refused_attempt(small.patch(ID, AttemptPatch(checkpoint="abc"), A))
        await refused_attempt(small.put(replace(RUNNING, attempt=2, checkpoint="abc"), A))

    @case(77)
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
    async def test_bad_options_are_refused_when_the_store_is_made(self, attempts: Any, options: Any) -> None:
        with pytest.raises(AttemptStoreError) as found:
            attempts.make_with(options)
        assert (found.value.code, found.value.method, found.value.cause) == ("invalid_attempt", "make_with", None)

    @case(79, 80)
    async def test_what_breaks_a_rule_is_refused_in_fixed_words(self, attempts: Any) -> None:
        failure = await refused_attempt(attempts.heartbeat(R, "digest", -1, A, 1))
        words = "attempt identity violates the durable identifier contract"
        assert str(failure) == f"invalid_attempt: AttemptStore.heartbeat: {words}"
        failure = await refused_attempt(attempts.patch(AttemptId(R, "digest", -1), AttemptPatch(), A))
        assert str(failure) == f"invalid_attempt: AttemptStore.patch: {words}"
        await refused_attempt(attempts.heartbeat(R, "digest", 1, A, -1))
        await refused_attempt(attempts.heartbeat(R, "digest", 1, A, 1, float("nan")))
        await refused_attempt(attempts.patch(ID, cast("Any", {"state": "x"}), A))
        await refused_attempt(attempts.patch(ID, AttemptPatch(meta=cast("Any", object())), A))
        await refused_attempt(attempts.patch(ID, AttemptPatch(), cast("Any", "owner")))

    @case(80)
    async def test_an_owner_is_read_once(self, attempts: Any) -> None:
        class DictSubclass(dict[str, Any]):
            """A mapping that is no plain dictionary may read differently the next time."""

        owner = {"host_id": A.host_id, "pid": A.pid, "nonce": A.nonce}
        assert "owner" in str(await refused_attempt(attempts.put(RUNNING, DictSubclass(owner))))
        assert await attempts.put(RUNNING, owner) == Inserted()

    @case(83)
    async def test_what_names_an_attempt_has_its_three_fields(self, attempts: Any) -> None:
        await attempts.put(RUNNING, A)
        assert await attempts.get(RUNNING) == RUNNING
        assert await attempts.patch(RUNNING, AttemptPatch(outcome=1), A) == Patched()
        inert = "attempt id must be an inert data record"
        for bad in (
            {"run_id": R, "step_key_digest": "digest"},
            SimpleNamespace(run_id=R),
            InheritedId(R, "digest", 1),
            None,
        ):
            assert str(await refused_attempt(attempts.get(bad))).endswith(inert)
            assert str(await refused_attempt(attempts.patch(bad, AttemptPatch(), A))).endswith(inert)

    @case(83)
    @pytest.mark.parametrize("admitted", [nested(128, 0), nested(128, []), [0] * 99_999])
    async def test_json_may_be_as_deep_and_as_long_as_the_limits(self, attempts: Any, admitted: Any) -> None:
        assert await attempts.put(replace(RUNNING, meta=admitted), A) == Inserted()
        assert (await attempts.get(ID)).meta == admitted

    @case(83)
    @pytest.mark.parametrize(
        ("value", "said"),
        [
            (nested(129, 0), "exceeds the maximum JSON depth of 128"),
            ([0] * 100_000, "contains more than 100000 JSON values"),
            ([[0] * 60_000, [0] * 60_000], "exceeds the JSON members limit"),
            (looped(), "contains a cycle"),
            ({"a": float("inf")}, "contains a non-finite number"),
            ({"a": object()}, "contains a non-JSON object"),
            ({"\ud800": 1}, "contains an unbounded or ill-formed object key"),
            (InheritedId(R, "digest", 1), "contains a non-JSON InheritedId"),
        ],
        ids=lambda value: value if type(value) is str else "value",
    )
    async def test_json_beyond_the_limits_is_refused_by_what_is_wrong_with_it(
        self, attempts: Any, value: Any, said: Any
    ) -> None:
        error = await refused_attempt(attempts.put(replace(RUNNING, meta=value), A))
        assert error.detail == f"meta {said}"
        assert await attempts.get(ID) is None
