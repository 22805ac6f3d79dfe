"""What watching costs a step. The figures are printed (``-rP`` shows them); the bounds are wide, machines differ."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json, sys, time

from belay_core.records.commands import Acquire, Record
from belay_core.ids import Uuid7Ids
from belay_core.clock import SystemClock
from belay_core.stores.attempts import Recorded
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.stores import Stores
from belay_core.telemetry import EngineSpans, observed
from belay_core.workflows.middleware import ExecutionFacts, StepFacts

STEPS = 2_000
OWNER = OwnerId("host", 1, "nonce")
TRACE = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
RECORD = Record(
    Lease("run", OWNER, 1),
    (
        StepRecord(
            step_key="pay#1",
            attempt=1,
            step="pay",
            kind=StepKind.STEP,
            state=StepState.SUCCEEDED,
            idempotent=True,
            started_at_ms=1,
        ),
    ),
)
POLL = Acquire(OWNER, ("w",), 1)
STEP = StepFacts("run", "w", "pay", "pay#1", 1, True)


class Bare:
    answer = Recorded(None, None)

    @property
    def runs(self):
        return self

    attempts = runs

    async def record(self, command):
        return self.answer

    async def acquire(self, command):
        return ()


async def bare_step(store, engine):
    await store.attempts.record(RECORD)


async def watched_step(store, engine):
    with engine.step(STEP) as close:
        await store.attempts.record(RECORD)
        close("succeeded")


async def poll(store, engine):
    await store.runs.acquire(POLL)


async def cost(work, store, engine):
    best = float("inf")
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(STEPS):
            await work(store, engine)
        best = min(best, time.perf_counter() - began)
    return best / STEPS * 1e6


async def main():
    bare, engine = Bare(), EngineSpans()
    watched = observed(Stores(bare, bare, SystemClock(), Uuid7Ids(), bare))
    figures = {}
    step, idle = await cost(bare_step, bare, engine), await cost(poll, bare, engine)
    for name, carrier in (("no SDK", None), ("no SDK, traced start", TRACE)):
        with engine.execution(ExecutionFacts("run", "w", 1, "host", carrier)):
            figures[f"step, {name}"] = await cost(watched_step, watched, engine) - step
    figures["empty poll, no SDK"] = await cost(poll, watched, engine) - idle

    from opentelemetry import trace
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    trace.set_tracer_provider(provider)
    with engine.execution(ExecutionFacts("run", "w", 1, "host", TRACE)):
        figures["step, SDK"] = await cost(watched_step, watched, engine) - step
    figures["empty poll, SDK"] = await cost(poll, watched, engine) - idle
    print(json.dumps(figures))


asyncio.run(main())
"""


@pytest.mark.timeout(120)
def test_a_step_costs_next_to_nothing_where_nobody_watches(record_property):
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    for name, microseconds in figures.items():
        record_property(name, microseconds)
        sys.stdout.write(f"{name}: {microseconds:.2f} µs\n")
    # Ten are promised, on a machine that does nothing else.
    assert figures["step, no SDK"] < 100
    assert figures["step, no SDK, traced start"] < 200
    assert figures["step, SDK"] < 1_000
