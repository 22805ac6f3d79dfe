"""The contract's stores over every database, watched: what the outcomes of a real store leave behind."""

import asyncio

import pytest

from belay_core.clock import reading
from belay_core.errors import AttemptStoreError, RunStoreError
from belay_core.ids import RunId
from belay_core.records.attempt import Attempt, AttemptId, AttemptPatch, FinishAttempt
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores.attempts import Finished, Inserted, Patched
from belay_core.stores.run_contract import Activated, CancelRequested, FenceLost, Transitioned, Updated
from belay_core.telemetry import observed
from belay_testing.spans import recorded_counters, recorded_spans

RUN = RunId("run-1")
OWNER = OwnerId("host-a", 1, "nonce-1")
OTHER = OwnerId("host-b", 1, "nonce-2")
PENDING = RunSnapshot(RunStatus.PENDING)
ATTEMPT = Attempt(RUN, "digest", 1, "running", 1, {})
OWNED = {"run_id": RUN, "owner_host_id": "host-a"}
IDENTITY = {"run_id": RUN, "step_key_digest": "digest", "attempt": 1}


@pytest.fixture
async def stores(belay_each_store):
    async with belay_each_store as opened:
        yield observed(opened)


@pytest.fixture
async def owned(stores):
    await stores.runs.create(RUN, "{}")
    assert await stores.runs.claim_and_own(RUN, PENDING, OWNER, reading(stores.clock)) == Activated()
    return stores


@pytest.fixture
def spans(owned):
    with recorded_spans() as recorded:
        yield recorded


def shown(spans):
    return [(span.name.rpartition(".")[2], dict(span.attributes)) for span in spans]


async def test_runs_made_read_and_missing(stores):
    with recorded_spans() as spans:
        await stores.runs.create(RUN, "{}")
        await stores.runs.get(RUN)
        with pytest.raises(RunStoreError, match="not_found_row"):
            await stores.runs.get(RunId("missing"))
        with pytest.raises(RunStoreError, match="invalid_run"):
            await stores.runs.get(RunId(""))
    assert shown(spans) == [
        ("create", {"run_id": RUN, "outcome": "success"}),
        ("get", {"run_id": RUN, "outcome": "success"}),
        ("get", {"run_id": "missing", "outcome": "failure"}),
        ("get", {"outcome": "failure"}),
    ]
    assert [span.status.description for span in spans] == [None, None, "not_found_row", "invalid_run"]


async def test_a_create_that_was_cancelled(stores):
    with recorded_spans() as spans:
        creating = asyncio.create_task(stores.runs.create(RUN, "{}"))
        await asyncio.sleep(0)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
    assert shown(spans) == [("create", {"run_id": RUN, "outcome": "interrupt"})]


async def test_a_run_owned_and_brought_to_its_end(stores):
    with recorded_spans() as spans, recorded_counters() as counted:
        await stores.runs.create(RUN, "{}")
        now = reading(stores.clock)
        assert await stores.runs.claim_and_own(RUN, PENDING, OWNER, now) == Activated()
        assert await stores.runs.heartbeat(RUN, OWNER, now) == Updated()
        assert await stores.runs.heartbeat(RUN, OTHER, now) == FenceLost()
        assert await stores.runs.transition_owned(RUN, OWNER, RunStatus.COMPLETED) == Transitioned()
        assert await stores.runs.transition_owned(RUN, OWNER, RunStatus.COMPLETED) == FenceLost()
    assert shown(spans)[1:] == [
        ("claim_and_own", {**OWNED, "outcome": "activated"}),
        ("heartbeat", {**OWNED, "outcome": "updated"}),
        ("heartbeat", {**OWNED, "owner_host_id": "host-b", "outcome": "fence_lost"}),
        ("transition_owned", {**OWNED, "to": "completed", "outcome": "transitioned"}),
        ("transition_owned", {**OWNED, "to": "completed", "outcome": "fence_lost"}),
    ]
    assert counted() == {
        "belay.run.claims{op=claim_and_own,outcome=activated}": 1,
        "belay.run.heartbeats{op=heartbeat,outcome=fence_lost}": 1,
        "belay.run.heartbeats{op=heartbeat,outcome=updated}": 1,
        "belay.run.throughput": 1,
        "belay.run.transitions{outcome=fence_lost,to=completed}": 1,
        "belay.run.transitions{outcome=transitioned,to=completed}": 1,
    }


async def test_attempts_put_kept_alive_patched_read_and_finished(owned, spans):
    attempts, attempt_id = owned.attempts, AttemptId(RUN, "digest", 1)
    assert await attempts.put(ATTEMPT, OWNER) == Inserted()
    assert await attempts.heartbeat(RUN, "digest", 1, OWNER, 2) == Updated()
    assert await attempts.patch(attempt_id, AttemptPatch(outcome=1), OWNER) == Patched()
    assert await attempts.finish(FinishAttempt(RUN, "digest", 1, "completed", 2), OWNER) == Finished()
    found = await attempts.get(attempt_id)
    assert found is not None
    assert found.state == "completed"
    owned_by = {**IDENTITY, "owner_host_id": "host-a"}
    assert shown(spans) == [
        ("put", {**owned_by, "outcome": "inserted"}),
        ("heartbeat", {**owned_by, "outcome": "updated"}),
        ("patch", {**owned_by, "outcome": "patched"}),
        ("finish", {**owned_by, "outcome": "finished"}),
        ("get", {**IDENTITY, "outcome": "success"}),
    ]


async def test_a_cancel_asked_for_and_acknowledged(owned, spans):
    assert await owned.runs.acknowledge_cancel(RUN, OWNER, 1) is False
    now = reading(owned.clock)
    assert await owned.runs.request_cancel(RUN, now) == CancelRequested(now)
    assert await owned.runs.acknowledge_cancel(RUN, OWNER, now) is True
    assert shown(spans) == [
        ("acknowledge_cancel", {**OWNED, "outcome": "success"}),
        ("request_cancel", {"run_id": RUN, "outcome": "cancel_requested"}),
        ("acknowledge_cancel", {**OWNED, "outcome": "success"}),
    ]


@pytest.mark.parametrize(
    ("given", "shown_of_it"),
    [
        ((RUN, "digest", 1, OWNER, -1), {**IDENTITY, "owner_host_id": "host-a"}),
        (("", "digest", 1, OWNER, 1), {"step_key_digest": "digest", "attempt": 1, "owner_host_id": "host-a"}),
        ((4711, "digest", "4711", OWNER, 1), {"step_key_digest": "digest", "owner_host_id": "host-a"}),
        ((RUN, "digest", 1, OwnerId("", 1, "nonce-1"), 1), {}),
        ((RUN, "digest", 1, None, 1), {}),
    ],
)
async def test_an_attempts_heartbeat_is_identified_once_its_owner_is_admitted(owned, spans, given, shown_of_it):
    with pytest.raises(AttemptStoreError, match="invalid_attempt"):
        await owned.attempts.heartbeat(*given)
    assert shown(spans) == [("heartbeat", {**shown_of_it, "outcome": "failure"})]


async def test_a_finish_into_a_state_that_is_no_end_keeps_its_identity(owned, spans):
    with pytest.raises(AttemptStoreError, match="invalid_attempt"):
        await owned.attempts.finish(FinishAttempt(RUN, "digest", 1, "running", 2), OWNER)
    with pytest.raises(AttemptStoreError, match="invalid_attempt"):
        await owned.attempts.finish(FinishAttempt(RUN, "", 1, "completed", 2), OWNER)
    assert shown(spans) == [
        ("finish", {**IDENTITY, "owner_host_id": "host-a", "outcome": "failure"}),
        ("finish", {"outcome": "failure"}),
    ]
