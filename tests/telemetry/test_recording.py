"""Recordings of tests: independent of each other, whatever was set before."""

import asyncio
import subprocess
import sys
import textwrap

from opentelemetry import trace

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.telemetry import EngineSpans, observed
from belay_core.workflows.middleware import StartFacts
from belay_testing.spans import recorded_counters, recorded_spans, tree

FIRST = StartFacts("run-1", "first")
SECOND = StartFacts("run-2", "second")


def test_recordings_hold_what_ended_while_they_were_open():
    engine = EngineSpans()
    with recorded_spans() as outer:
        with engine.start(FIRST):
            pass
        with recorded_spans() as inner, engine.start(SECOND):
            pass
        with engine.start(SECOND), recorded_spans() as early:
            pass
    with engine.start(FIRST):
        pass
    assert [span.name for span in outer] == ["start first", "start second", "start second"]
    assert [span.name for span in inner] == ["start second"]
    assert early == []
    with recorded_spans() as again:
        pass
    assert again == []


def test_two_recordings_that_saw_the_same_close_in_any_order():
    first, second = recorded_spans(), recorded_spans()
    seen = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    trace.get_tracer("test").start_span("late").end()
    second.__exit__(None, None, None)
    assert [[span.name for span in spans] for spans in seen] == [[], ["late"]]


async def test_counters_are_read_from_where_the_recording_began(watched, examples):
    heartbeat = examples["belay.run_store.heartbeat"]
    await watched.do(heartbeat)
    with recorded_counters() as counted:
        assert counted() == {}
        await watched.do(heartbeat)
        assert counted() == {"belay.run.heartbeats{op=heartbeat,outcome=updated}": 1}
    assert watched.counted() == {"belay.run.heartbeats{op=heartbeat,outcome=updated}": 2}


def test_a_tree_puts_spans_without_a_known_parent_at_the_margin():
    tracer = trace.get_tracer("test")
    with recorded_spans() as spans, tracer.start_as_current_span("above"), tracer.start_as_current_span("middle"):
        tracer.start_span("below").end()
    assert tree(spans) == "above\n  middle\n    below"
    assert tree(span for span in spans if span.name != "above") == "middle\n  below"
    assert tree([]) == ""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)], check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_what_was_observed_before_a_recording_is_recorded():
    printed = run("""
        from belay_core.telemetry import EngineSpans
        from belay_core.workflows.middleware import StartFacts
        engine = EngineSpans()
        with engine.start(StartFacts("r", "early")) as text:
            print(text)
        from belay_testing.spans import recorded_spans, tree
        with recorded_spans() as spans:
            with engine.start(StartFacts("r", "late")):
                pass
        print(tree(spans))
    """)
    assert printed == "None\nstart late [success]"


def test_a_provider_of_the_project_under_test_is_recorded_too():
    printed = run("""
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        own = TracerProvider(shutdown_on_exit=False)
        trace.set_tracer_provider(own)
        from belay_testing.spans import recorded_spans, tree
        for name in ("a", "b"):
            with recorded_spans() as spans:
                own.get_tracer("theirs").start_span(name).end()
            print(tree(spans))
    """)
    assert printed == "a\nb"


def test_counters_of_a_foreign_provider_are_refused():
    printed = run("""
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        metrics.set_meter_provider(MeterProvider(shutdown_on_exit=False))
        from belay_testing.spans import ProviderTaken, recorded_counters
        for _ in range(2):
            try:
                with recorded_counters():
                    pass
            except ProviderTaken:
                print("refused")
    """)
    assert printed == "refused\nrefused"


def test_watching_loads_the_api_and_no_sdk():
    printed = run("""
        import sys
        import belay_core, belay_core.workflows.middleware, belay_core.stores
        print(any(name.startswith("opentelemetry") for name in sys.modules))
        import belay_core.telemetry, belay_testing.spans
        print(any(name.startswith("opentelemetry.sdk") for name in sys.modules), "opentelemetry.trace" in sys.modules)
    """)
    assert printed == "False\nFalse True"


async def test_writes_that_wait_are_shown_while_they_do(belay_stores):
    with recorded_counters() as counted:
        async with belay_stores as stores:
            watched = observed(stores)
            starts = [commands.Start(RunId(f"run-{name}"), "flow", "1", "null") for name in "abc"]
            starting = [asyncio.ensure_future(watched.runs.start(each)) for each in starts]
            while stores.writer.queued < 3:
                await asyncio.sleep(0)
            assert counted()["belay.db.queued_writes"] == 3
            await asyncio.gather(*starting)
            assert "belay.db.queued_writes" not in counted()
