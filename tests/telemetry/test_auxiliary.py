"""The stores beside runs, attempts and engine leave the spans the page describes, and idle followers none."""

import inspect

import pytest

from belay_core.errors import WaitingStoreError
from belay_core.ids import RunId
from belay_core.records.changes import START
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.waiting import Wait
from belay_core.stores import Changes, Journal, Retention, WaitingStore
from belay_core.stores.changes import SourceChanged
from belay_core.stores.run_contract import NotFound
from belay_core.telemetry import observed
from belay_core.telemetry.stores import SPANS
from belay_testing.spans import recorded_spans

A = OwnerId("host-a", 101, "owner-a")
RUN = RunId("run")
SECRET = "tweet-4711"
OWNED = {"run_id": "run", "owner_host_id": "host-a"}


@pytest.fixture
async def watched(belay_stores):
    async with belay_stores as stores:
        await stores.runs.create(RUN, "{}")
        await stores.runs.claim_and_own(RUN, RunSnapshot(RunStatus.PENDING), A, int(stores.clock.now()))
        with recorded_spans() as spans:
            yield observed(observed(stores)), spans


def seen(spans):
    return [(span.name, dict(span.attributes)) for span in spans]


async def test_each_operation_leaves_one_span_with_its_identity_and_outcome(watched):
    stores, spans = watched
    source = (await stores.changes.current()).source
    await stores.waiting.park(RUN, Wait(SECRET, 1, SECRET, SECRET), A)
    await stores.waiting.waiting(RUN)
    await stores.waiting.waiting_runs()
    await stores.waiting.wake(RUN)
    await stores.waiting.wake(RUN)
    await stores.journal.append(RUN, A, SECRET, SECRET)
    await stores.journal.read(RUN)
    await stores.journal.ownership(RUN)
    await stores.changes.changes_since(source, START)
    await stores.changes.snapshot([RUN, RUN])
    await stores.changes.list_runs()
    await stores.changes.cancellation(RUN)
    assert await stores.changes.cancellation(RunId("other")) == NotFound()
    await stores.retention.delete(RUN)
    run = {"run_id": "run"}
    assert seen(spans) == [
        ("belay.waiting_store.park", {**OWNED, "outcome": "parked"}),
        ("belay.waiting_store.waiting", {**run, "outcome": "success"}),
        ("belay.waiting_store.waiting_runs", {"count": 1, "outcome": "success"}),
        ("belay.waiting_store.wake", {**run, "outcome": "woken"}),
        ("belay.waiting_store.wake", {**run, "outcome": "not_waiting"}),
        ("belay.journal.append", {**OWNED, "outcome": "appended"}),
        ("belay.journal.read", {**run, "count": 4, "outcome": "success"}),
        ("belay.journal.ownership", {**run, "count": 2, "outcome": "success"}),
        ("belay.changes.changes_since", {"count": 1, "outcome": "success"}),
        ("belay.changes.snapshot", {"count": 2, "outcome": "success"}),
        ("belay.changes.list_runs", {"count": 1, "outcome": "success"}),
        ("belay.changes.cancellation", {**run, "outcome": "success"}),
        ("belay.changes.cancellation", {"run_id": "other", "outcome": "not_found"}),
        ("belay.retention.delete", {**run, "outcome": "still_live"}),
    ]
    assert all(SECRET not in span.to_json() for span in spans)


async def test_idle_followers_and_sweepers_send_nothing(watched):
    stores, spans = watched
    head = await stores.changes.current()
    for _ in range(10):
        await stores.changes.current()
        await stores.changes.changes_since(head.source, head.position)
        await stores.waiting.waiting_runs("released")
    assert seen(spans) == []
    assert await stores.changes.changes_since("0" * 32, START) == SourceChanged(head.source)
    assert seen(spans) == [("belay.changes.changes_since", {"count": 1, "outcome": "source_changed"})]


async def test_an_invalid_call_shows_its_outcome_alone(watched):
    stores, spans = watched
    with pytest.raises(WaitingStoreError):
        await stores.waiting.park(RUN, Wait(""), A)
    assert seen(spans) == [("belay.waiting_store.park", {"outcome": "failure"})]
    assert spans[0].status.description == "invalid_run"


async def test_reads_of_one_moment_are_reads_of_the_run_store(watched):
    stores, spans = watched
    async with stores.snapshot() as reads:
        await reads.get(RUN)
        await reads.lineage(RUN)
        await reads.latest_round(RUN)
    expected = ("belay.run_store.get", "belay.run_store.lineage", "belay.run_store.latest_round")
    assert seen(spans) == [(name, {"run_id": "run", "outcome": "success"}) for name in expected]


async def test_the_stores_inside_a_write_are_watched_too(watched):
    stores, spans = watched

    async def body(inside):
        await inside.waiting.park(RUN, Wait("event"), A)
        await inside.journal.append(RUN, A, "mine", None)
        await inside.runs.transition_owned(RUN, A, RunStatus.SUSPENDED)

    await stores.write(body)
    expected = ["belay.waiting_store.park", "belay.journal.append", "belay.run_store.transition_owned"]
    assert [span.name for span in spans] == [*expected, "belay.writer.write"]
    assert (await stores.waiting.waiting(RUN)).status is RunStatus.SUSPENDED


@pytest.mark.parametrize(
    ("protocol", "prefix"),
    [(WaitingStore, "waiting_store"), (Journal, "journal"), (Changes, "changes"), (Retention, "retention")],
)
def test_every_operation_has_a_name(protocol, prefix):
    operations = {name for name in dir(protocol) if inspect.iscoroutinefunction(getattr(protocol, name))}
    assert {f"belay.{prefix}.{name}" for name in operations} <= SPANS
