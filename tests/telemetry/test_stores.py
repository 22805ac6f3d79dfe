"""An observed store answers as the store behind it, and leaves the span the documentation describes."""

import asyncio
import inspect
from dataclasses import replace

import pytest
from opentelemetry.trace import NoOpTracerProvider, StatusCode

from belay_core.errors import ApprovalStoreError, AttemptStoreError, InvalidInput, RunStoreError
from belay_core.stores.approvals import ApprovalStore
from belay_core.stores.attempts import AttemptStore, RunNotFound
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import Renewed, RunStore
from belay_core.telemetry import observed
from belay_testing.cases import case

SILENT = ("belay.run_store.find", "belay.run_store.running_owners")
ERRORS = {"run": RunStoreError, "attempt": AttemptStoreError, "approval": ApprovalStoreError}


def operations(protocol: type) -> set[str]:
    """The operations of a store; what makes another store of it is none."""
    return {name for name in dir(protocol) if inspect.iscoroutinefunction(getattr(protocol, name))}


def test_every_operation_has_an_example(examples):
    expected = {
        f"belay.{store}_store.{operation}"
        for store, protocol in (("run", RunStore), ("attempt", AttemptStore), ("approval", ApprovalStore))
        for operation in operations(protocol)
    }
    assert set(examples) == expected


async def test_the_store_behind_is_given_what_was_given_and_its_answer_comes_back(watched, example):
    assert await watched.do(example) is example.answer
    *read_for_the_span, (operation, given) = watched.behind.calls
    assert [name for name, _ in read_for_the_span] == (["find"] if example.operation == "decide" else [])
    assert operation == example.operation
    assert given[: len(example.given)] == example.given
    assert all(left_out is None for left_out in given[len(example.given) :])


@case(94)
async def test_the_span_says_whom_it_was_about_and_how_it_ended(watched, example):
    await watched.do(example)
    if example.span in SILENT:
        assert watched.seen == []
    else:
        assert watched.seen == [(example.span, {**example.shown, "outcome": example.outcome})]


async def test_a_span_shows_no_payload(watched, example, secret):
    await watched.do(example)
    with pytest.raises(RunStoreError):
        await watched.do(example, RunStoreError("persistence_failed", "get", secret, {"x": secret}))
    assert watched.spans
    for span in watched.spans:
        assert secret not in span.to_json()


@case(94)
async def test_a_defect_keeps_the_identity_and_shows_its_code(watched, example):
    error = ERRORS[example.store]("persistence_failed", example.operation, "it is gone")
    with pytest.raises(type(error)) as raised:
        await watched.do(example, error)
    assert raised.value is error
    shown = {key: value for key, value in example.shown.items() if key != "count" or "run_id" in example.shown}
    if example.operation in {"history", "journal"}:
        shown.pop("count")
    assert watched.seen == [(example.span, {**shown, "outcome": "failure"})]
    assert watched.spans[0].status.status_code is StatusCode.ERROR
    assert watched.spans[0].status.description == "persistence_failed"
    assert watched.spans[0].events == ()


@pytest.mark.parametrize(
    "error",
    [
        RunStoreError("invalid_run", "get", "run input is invalid"),
        AttemptStoreError("invalid_attempt", "get", "attempt must be an inert data record"),
        InvalidInput("by", "must not be empty"),
    ],
)
async def test_an_invalid_call_ends_with_its_outcome_alone(watched, example, error):
    with pytest.raises(type(error)):
        await watched.do(example, error)
    assert watched.seen == [(example.span, {"outcome": "failure"})]


async def test_a_finish_into_a_state_that_is_no_end_keeps_its_identity(watched, examples):
    example = examples["belay.attempt_store.finish"]
    error = AttemptStoreError("invalid_attempt", "finish", "finish requires a terminal state and valid timestamp")
    with pytest.raises(AttemptStoreError):
        await watched.do(example, error)
    assert watched.seen == [(example.span, {**example.shown, "outcome": "failure"})]


async def test_a_cancelled_operation_is_interrupted_and_no_defect(watched, example):
    with pytest.raises(asyncio.CancelledError):
        await watched.do(example, asyncio.CancelledError())
    if example.span in SILENT or example.operation in ("renew", "acquire", "wake"):
        assert watched.seen == []
    else:
        [span] = watched.spans
        assert span.attributes["outcome"] == "interrupt"
        assert span.status.status_code is StatusCode.UNSET


async def test_another_exception_shows_nothing_of_its_text(watched, example, secret):
    with pytest.raises(ZeroDivisionError):
        await watched.do(example, ZeroDivisionError(secret))
    [span] = watched.spans
    assert span.attributes["outcome"] == "failure"
    assert span.status.description == "failure"
    assert secret not in span.to_json()


async def test_a_lost_fence_is_an_answer_and_no_defect(watched, examples):
    await watched.do(examples["belay.run_store.heartbeat"], FenceLost())
    await watched.do(examples["belay.run_store.settle"], FenceLost())
    assert [span.attributes["outcome"] for span in watched.spans] == ["fence_lost", "fence_lost"]
    assert all(span.status.status_code is StatusCode.UNSET for span in watched.spans)


async def test_a_decision_whose_run_cannot_be_read_is_made_all_the_same(watched, examples):
    async def gone(approval_id):
        raise ApprovalStoreError("persistence_failed", "find", "gone")

    watched.behind.find = gone
    decide = examples["belay.approval_store.decide"]
    assert await watched.do(decide) is decide.answer
    [span] = watched.spans
    assert span.attributes["outcome"] == "decided"
    assert span.links == ()


async def test_nothing_is_read_for_a_decision_that_nobody_traces(watched, examples):
    watched.stores = observed(replace(watched.stores, approvals=watched.behind), tracer_provider=NoOpTracerProvider())
    await watched.do(examples["belay.approval_store.decide"])
    assert [name for name, _ in watched.behind.calls] == ["decide"]


async def test_leases_that_fared_differently_are_mixed(watched, examples):
    renew = examples["belay.run_store.renew"]
    await watched.do(renew, (Renewed(None, None), FenceLost()))
    await watched.do(renew, (RunNotFound(), RunNotFound()))
    assert [span.attributes["outcome"] for span in watched.spans] == ["mixed", "run_not_found"]


async def test_a_store_that_admits_too_much_does_not_fail_because_it_is_watched(watched, examples):
    heartbeat = examples["belay.run_store.heartbeat"]
    watched.behind.answer = heartbeat.answer
    assert await watched.stores.runs.heartbeat("run-1", None, 1) is heartbeat.answer
    assert watched.seen == [(heartbeat.span, {"outcome": "updated"})]


def test_stores_are_watched_once(watched):
    again = observed(watched.stores)
    assert again == watched.stores
    assert again.runs is watched.stores.runs
    assert again.attempts is watched.stores.attempts
    assert again.approvals is watched.stores.approvals
    assert again.clock is watched.stores.clock
    assert again.notifier is watched.stores.notifier
