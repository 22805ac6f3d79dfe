"""One trace a run: over crash and wait, in other processes and in threads, and never longer than the work itself."""

import asyncio
import contextvars
import json

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from belay_core.stores.run_contract import Updated
from belay_core.telemetry import EngineSpans
from belay_core.telemetry.instruments import instruments
from belay_core.telemetry.operation_span import OperationSpan
from belay_core.workflows.middleware import ExecutionFacts, GateFacts, StartFacts, StepFacts
from belay_testing.spans import recorded_spans, tree

START = StartFacts("run-1", "newsletter")
ASKED = GateFacts("run-1", "newsletter", "editor", "editor#1")
ANSWERED = GateFacts("run-1", "newsletter", "editor", "editor#1", "approved")


def execution_facts(trace_text: str | None, epoch: int = 1) -> ExecutionFacts:
    return ExecutionFacts("run-1", "newsletter", epoch, "host-a", trace_text)


def step(name: str, attempt: int = 1) -> StepFacts:
    return StepFacts("run-1", "newsletter", name, f"{name}#1", attempt, idempotent=True)


@pytest.fixture
def spans():
    with recorded_spans() as recorded:
        yield recorded


@pytest.fixture
def engine():
    return EngineSpans()


def started(engine: EngineSpans) -> str | None:
    with engine.start(START) as text:
        return text


def killed(engine: EngineSpans, facts: ExecutionFacts, inside: str) -> None:
    """An execution whose process dies inside a step: what had ended by then was sent, what was open never is."""

    def until_it_dies() -> None:
        engine.execution(facts).__enter__()
        engine.step(step(inside)).__enter__()
        with OperationSpan(instruments(), "belay.run_store.heartbeat") as seen:
            seen(Updated())

    contextvars.copy_context().run(until_it_dies)


def test_a_run_is_one_trace_over_a_wait_and_a_crash(engine, spans):
    text = started(engine)
    with engine.execution(execution_facts(text, 1)) as close:
        with engine.step(step("write")) as ended:
            ended("succeeded")
        engine.gate(ASKED)
        close("suspended")
    killed(engine, execution_facts(text, 2), "send")
    with EngineSpans().execution(execution_facts(text, 3)) as close:
        engine.gate(ANSWERED)
        with engine.step(step("send")) as ended:
            ended("failed")
        with engine.step(step("send", 2)) as ended:
            ended("succeeded")
        close("completed")

    assert tree(spans).splitlines() == [
        "start newsletter [success]",
        "  invoke_workflow newsletter [acquired]",
        "    execute newsletter [suspended]",
        "    step write [succeeded]",
        "    gate editor [asked]",
        "  invoke_workflow newsletter [acquired]",
        "    belay.run_store.heartbeat [updated]",
        "  invoke_workflow newsletter [acquired]",
        "    execute newsletter [completed]",
        "    gate editor [approved]",
        "    step send [failed] !",
        "    step send [succeeded]",
    ]
    assert len({span.context.trace_id for span in spans}) == 1


def test_the_carrier_is_a_w3c_trace_context(engine, spans):
    carrier = json.loads(started(engine) or "")
    [span] = spans
    assert set(carrier) == {"traceparent"}
    version, trace_id, span_id, flags = carrier["traceparent"].split("-")
    assert version == "00"
    assert trace_id == f"{span.context.trace_id:032x}"
    assert span_id == f"{span.context.span_id:016x}"
    assert int(flags, 16) & 1
    assert span.kind is SpanKind.PRODUCER
    assert dict(span.attributes) == {
        "belay.run.id": "run-1",
        "belay.workflow": "newsletter",
        "outcome": "success",
    }


def test_a_start_is_a_child_of_what_the_caller_does(engine, spans):
    with trace.get_tracer("web").start_as_current_span("POST /letters"):
        started(engine)
    assert tree(spans) == "POST /letters\n  start newsletter [success]"


def test_an_execution_is_named_for_people_and_for_viewers_of_agents(engine, spans):
    with engine.execution(execution_facts(None, 4)) as close:
        close("completed")
    first, last = spans
    assert (first.name, last.name) == ("invoke_workflow newsletter", "execute newsletter")
    assert {first.kind, last.kind} == {SpanKind.INTERNAL}
    shared = {
        "belay.run.id": "run-1",
        "belay.workflow": "newsletter",
        "belay.epoch": 4,
        "belay.host_id": "host-a",
    }
    assert dict(last.attributes) == {**shared, "outcome": "completed"}
    assert dict(first.attributes) == {
        **shared,
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.name": "newsletter",
        "gen_ai.workflow.name": "newsletter",
        "gen_ai.conversation.id": "run-1",
        "openinference.span.kind": "CHAIN",
        "outcome": "acquired",
    }


def test_the_parent_of_the_other_spans_is_sent_when_the_execution_begins(engine, spans):
    with engine.execution(execution_facts(started(engine))) as close:
        assert [span.name for span in spans] == ["start newsletter", "invoke_workflow newsletter"]
        with engine.step(step("write")) as ended:
            ended("succeeded")
        close("completed")
    _, first, worked, last = spans
    assert first.start_time == first.end_time == last.start_time
    assert last.end_time >= worked.end_time
    assert {worked.parent.span_id, last.parent.span_id} == {first.context.span_id}


def test_no_span_of_a_killed_owner_has_a_parent_that_never_came(engine, spans):
    killed(engine, execution_facts(started(engine)), "write")
    arrived = set()
    for span in spans:
        assert span.parent is None or span.parent.span_id in arrived
        arrived.add(span.context.span_id)
    assert [span.name for span in spans][1:] == ["invoke_workflow newsletter", "belay.run_store.heartbeat"]


def test_a_store_operation_hangs_on_what_the_author_opened_inside_a_step(engine, spans):
    with engine.execution(execution_facts(None)), engine.step(step("write")) as ended:
        with trace.get_tracer("author").start_as_current_span("author's"), OperationSpan(instruments(), "belay.x"):
            pass
        ended("succeeded")
    names = {span.context.span_id: span.name for span in spans}
    assert {span.name: span.parent and names[span.parent.span_id] for span in spans}["belay.x"] == "author's"


def test_an_author_may_write_on_the_current_span_of_a_body(engine, spans, caplog):
    with engine.execution(execution_facts(None)) as close:
        trace.get_current_span().set_attribute("mine", 1)
        close("completed")
    assert caplog.records == []


def test_linked_executions_are_traces_of_their_own(spans):
    engine = EngineSpans(linked=True)
    text = started(engine)
    for facts in (execution_facts(text, 1), execution_facts(text, 2), execution_facts(None, 3)):
        with engine.execution(facts) as close, engine.step(step("write")) as ended:
            ended("succeeded")
            close("completed")
    begun = next(span for span in spans if span.name == "start newsletter")
    firsts = [span for span in spans if span.name == "invoke_workflow newsletter"]
    assert [span.parent for span in firsts] == [None, None, None]
    assert len({span.context.trace_id for span in (begun, *firsts)}) == 4
    assert [[link.context.span_id for link in span.links] for span in firsts] == [
        [begun.context.span_id],
        [begun.context.span_id],
        [],
    ]


def test_a_step_says_which_attempt_of_what_it_is(engine, spans):
    with engine.step(step("write", 2)) as close:
        close("succeeded")
    [span] = spans
    assert span.kind is SpanKind.INTERNAL
    assert dict(span.attributes) == {
        "belay.run.id": "run-1",
        "belay.workflow": "newsletter",
        "belay.step.name": "write",
        "belay.step.key": "write#1",
        "belay.step.attempt": 2,
        "belay.step.idempotent": True,
        "outcome": "succeeded",
    }


def test_a_gate_takes_no_time(engine, spans):
    engine.gate(ASKED)
    engine.gate(ANSWERED)
    assert [span.end_time - span.start_time for span in spans] == [0, 0]
    shared = {
        "belay.run.id": "run-1",
        "belay.workflow": "newsletter",
        "belay.gate.name": "editor",
        "belay.step.key": "editor#1",
    }
    assert dict(spans[0].attributes) == {**shared, "outcome": "asked"}
    assert dict(spans[1].attributes) == {**shared, "belay.gate.answer": "approved", "outcome": "approved"}


def test_a_worker_inside_a_span_does_not_hang_its_runs_below_it(engine, spans):
    text = started(engine)
    with trace.get_tracer("main").start_as_current_span("main"):
        for carrier in (text, None):
            with engine.execution(execution_facts(carrier)) as close:
                close("completed")
        assert trace.get_current_span().get_span_context().span_id != 0
    assert tree(spans).splitlines() == [
        "start newsletter [success]",
        "  invoke_workflow newsletter [acquired]",
        "    execute newsletter [completed]",
        "main",
        "invoke_workflow newsletter [acquired]",
        "  execute newsletter [completed]",
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "{",
        "[]",
        "null",
        "4",
        '{"traceparent": 4}',
        '{"traceparent": "00-0-0-01"}',
        '{"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"}',
        "[" * 4_000,
        '{"traceparent": "' + "0" * 100_000 + '"}',
        '{"tracestate": "a=b"}',
    ],
)
def test_a_damaged_carrier_costs_the_parent_and_nothing_else(engine, spans, damaged):
    with engine.execution(execution_facts(damaged)) as close:
        close("completed")
    first, last = spans
    assert first.parent is None
    assert last.parent.span_id == first.context.span_id


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("succeeded", StatusCode.UNSET),
        ("cancelled", StatusCode.UNSET),
        ("abandoned", StatusCode.UNSET),
        ("suspended", StatusCode.UNSET),
        ("fence_lost", StatusCode.UNSET),
        ("failed", StatusCode.ERROR),
        ("orphaned", StatusCode.ERROR),
    ],
)
def test_what_failed_is_marked_with_its_outcome_and_no_more(engine, spans, outcome, status):
    with engine.step(step("write")) as close:
        close(outcome)
    [span] = spans
    assert span.status.status_code is status
    assert span.status.description == (outcome if status is StatusCode.ERROR else None)
    assert span.events == ()


@pytest.mark.parametrize(
    ("error", "closed", "outcome"),
    [
        (ValueError("4711-is-a-secret"), None, "failure"),
        (ValueError("4711-is-a-secret"), "failed", "failed"),
        (asyncio.CancelledError(), None, "interrupt"),
        (asyncio.CancelledError(), "failure", "interrupt"),
        (asyncio.CancelledError(), "cancelled", "cancelled"),
    ],
)
def test_an_exception_passes_through_and_leaves_no_text(engine, spans, error, closed, outcome):
    def work() -> None:
        with engine.step(step("write")) as close:
            if closed is not None:
                close(closed)
            raise error

    with pytest.raises(type(error)) as raised:
        work()
    assert raised.value is error
    assert spans[0].attributes["outcome"] == outcome
    assert "4711-is-a-secret" not in spans[0].to_json()


def test_a_start_that_failed_says_so(engine, spans):
    with pytest.raises(ValueError, match="no"), engine.start(START):
        raise ValueError("no")
    assert spans[0].attributes["outcome"] == "failure"


async def test_a_step_is_current_in_its_own_task_and_in_its_thread(engine, spans):
    def inside() -> None:
        trace.get_tracer("author").start_span("in a thread").end()

    async def one(name: str) -> None:
        with engine.step(step(name)) as close:
            await asyncio.to_thread(inside)
            trace.get_tracer("author").start_span("in the task").end()
            close("succeeded")

    with engine.execution(execution_facts(None)) as close:
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b"):
                group.create_task(one(name))
        close("completed")
    lines = tree(spans).splitlines()
    assert lines[:2] == ["invoke_workflow newsletter [acquired]", "  execute newsletter [completed]"]
    assert sorted(lines[2:]) == sorted(
        line for name in ("a", "b") for line in (f"  step {name} [succeeded]", "    in a thread", "    in the task")
    )


def test_a_run_that_was_not_sampled_stays_so(spans):
    sampled = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    with EngineSpans(sampled).start(START) as text:
        pass
    assert int(json.loads(text or "")["traceparent"].rpartition("-")[2], 16) & 1 == 0
    # The worker would sample everything by itself; the run's own decision goes before.
    parent_based = TracerProvider(shutdown_on_exit=False)
    engine = EngineSpans(parent_based)
    with engine.execution(execution_facts(text)) as close, engine.step(step("write")) as ended:
        assert not trace.get_current_span().get_span_context().trace_flags.sampled
        ended("succeeded")
        close("completed")
    assert spans == []


def test_without_an_sdk_there_is_no_carrier_and_no_current_span():
    engine = EngineSpans(trace.NoOpTracerProvider())
    with engine.start(START) as text:
        assert text is None
    with engine.execution(execution_facts(None)) as close, engine.step(step("write")) as ended:
        assert trace.get_current_span() is trace.INVALID_SPAN
        ended("succeeded")
        close("completed")
    engine.gate(ASKED)
