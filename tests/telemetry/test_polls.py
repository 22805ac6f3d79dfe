"""Whoever waits sends nothing: a poll that finds nothing leaves no span, no count and no statement of a database."""

import asyncio
from dataclasses import replace

import pytest
from opentelemetry import context, trace

from belay_core.errors import StoreError
from belay_core.stores.runs import RunsWoken
from belay_core.telemetry import observed
from belay_testing.spans import tree

IDLE = {"acquire": (), "wake": RunsWoken(0), "renew": (), "running_owners": (), "find": None}


@pytest.mark.parametrize("operation", IDLE)
async def test_a_thousand_idle_polls_leave_nothing(watched, examples, operation):
    for _ in range(1_000):
        await watched.do(examples[f"belay.run_store.{operation}"], IDLE[operation])
    assert watched.spans == []
    assert watched.counted() == {}


async def test_waiting_for_a_run_leaves_nothing_either(watched, examples):
    await watched.do(examples["belay.run_store.find"])
    await watched.do(examples["belay.run_store.running_owners"])
    assert watched.spans == []


async def test_a_poll_that_fails_is_seen(watched, examples):
    for operation in IDLE:
        with pytest.raises(StoreError):
            await watched.do(
                examples[f"belay.run_store.{operation}"], StoreError("persistence_failed", operation, "gone")
            )
    assert [span.name for span in watched.spans] == [f"belay.run_store.{operation}" for operation in IDLE]


async def test_a_poll_that_is_stopped_leaves_no_span(watched, examples):
    with pytest.raises(asyncio.CancelledError):
        await watched.do(examples["belay.run_store.acquire"], asyncio.CancelledError())
    assert watched.spans == []
    assert watched.counted() == {"belay.run.claims{op=acquire,outcome=interrupt}": 1}


async def test_the_span_of_a_poll_that_found_something_spans_the_poll(watched, examples):
    example = examples["belay.run_store.acquire"]

    async def acquire(command):
        await asyncio.sleep(0.02)
        return example.answer * 2

    watched.behind.acquire = acquire
    with trace.get_tracer("test").start_as_current_span("outside"):
        await watched.do(example)
    assert tree(watched.spans) == "outside\n  belay.run_store.acquire [acquired]"
    poll, _ = watched.spans
    assert 19e6 < poll.end_time - poll.start_time < 10e9
    assert poll.attributes["count"] == 2


async def test_instrumentations_of_databases_are_suppressed_during_a_poll(watched, examples):
    seen = []

    async def look(*given):
        seen.append(context.get_value("suppress_instrumentation"))
        return ()

    watched.behind.acquire = watched.behind.running_owners = watched.behind.history = look
    for operation in ("run_store.acquire", "run_store.running_owners", "attempt_store.history"):
        await watched.do(examples[f"belay.{operation}"])
    assert seen == [True, True, None]
    assert context.get_value("suppress_instrumentation") is None


async def test_stores_may_be_watched_with_providers_of_their_own(watched, examples):
    behind = replace(watched.stores, runs=watched.behind)
    watched.stores = observed(behind, tracer_provider=trace.NoOpTracerProvider())
    await watched.do(examples["belay.run_store.heartbeat"])
    assert watched.spans == []
    assert watched.counted() == {"belay.run.heartbeats{op=heartbeat,outcome=updated}": 1}
