"""A worker and a client over SQLite, watched as they are by default: one tree a run, over a wait and over a crash."""

import asyncio
import json
import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from belay_core import Approved, Client, Context, Worker, step, workflow
from belay_drivers.sqlite import open_sqlite
from belay_testing.spans import recorded_counters, recorded_spans, tree
from tests.viewer import reading

pytestmark = pytest.mark.timeout(60)


@workflow("letter")
async def letter(ctx: Context, topic: str) -> str:
    written = await ctx.step(write, topic)
    answer = await ctx.gate("editor", subject=written)
    return await ctx.step(send, answer.subject) if isinstance(answer, Approved) else "dropped"


@step(idempotent=True)
async def write(topic: str) -> str:
    return topic.upper()


@step
def send(text: str) -> str:
    return f"{text}!"


@workflow("short")
async def short(ctx: Context) -> str:
    return await ctx.step(write, "news")


@workflow("failing")
async def failing(ctx: Context) -> str:
    return await ctx.step(fails)


@step(idempotent=True)
async def fails() -> str:
    raise ValueError("4711-is-a-secret")


KILLED = """
import asyncio, sys
from belay_core import Context, Worker, step, workflow
from belay_drivers.sqlite import open_sqlite

@step(idempotent=True)
async def write(topic: str) -> str:
    print("inside", flush=True)
    await asyncio.sleep(60)
    return "never"

@workflow("short")
async def short(ctx: Context) -> str:
    return await ctx.step(write, "news")

async def main():
    async with open_sqlite(sys.argv[1]) as stores, Worker(stores, [short]):
        await asyncio.sleep(60)

asyncio.run(main())
"""


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


async def test_a_run_is_one_tree_from_its_start_to_its_end():
    with recorded_spans() as spans, recorded_counters() as counted:
        async with open_sqlite(":memory:") as stores:
            # By hand, so that the run is parked at once and not after a second of waiting in memory.
            worker = Worker(stores, [letter], background=False)
            client = Client(stores, approver="editor@example.org")
            run = await client.start(letter, "news")
            assert await worker.dispatcher.take() == 1
            await worker.dispatcher.finish_all()
            await client.approve(run)
            assert await worker.dispatcher.take() == 1
            await worker.dispatcher.finish_all()
            assert await run.result() == "NEWS!"
            assert await worker.dispatcher.take() == 0
            await worker.leave()
    [start] = [span for span in spans if span.name == "start letter"]
    assert tree(span for span in spans if trace_of(span) == trace_of(start)).splitlines() == [
        "start letter [success]",
        "  belay.run_store.start [started]",
        "  invoke_workflow letter [acquired]",
        "    execute letter [suspended]",
        "    step write [succeeded]",
        "    belay.attempt_store.record [recorded]",
        "    belay.approval_store.ask [inserted]",
        "    gate editor [asked]",
        "    belay.run_store.park [run_parked]",
        "  invoke_workflow letter [acquired]",
        "    execute letter [completed]",
        "    belay.attempt_store.record [recorded]",
        "    gate editor [approved]",
        "    step send [succeeded]",
        "    belay.attempt_store.record [recorded]",
        "    belay.attempt_store.record [recorded]",
        "    belay.run_store.settle [settled]",
    ]
    [decision] = [span for span in spans if span.name == "belay.approval_store.decide"]
    assert trace_of(decision) != trace_of(start)
    assert start.context is not None
    assert [link.context.span_id for link in decision.links] == [start.context.span_id]
    assert counted() == {
        "belay.run.claims{op=acquire,outcome=acquired}": 2,
        "belay.run.throughput": 1,
        "belay.run.transitions{outcome=run_parked,to=suspended}": 1,
        "belay.run.transitions{outcome=settled,to=completed}": 1,
    }


async def test_a_run_whose_worker_was_killed_goes_on_in_its_trace(tmp_path):
    path = tmp_path / "belay.db"
    with recorded_spans() as spans:
        async with open_sqlite(path) as stores:
            run = await Client(stores).start(short)
            killed = await asyncio.create_subprocess_exec(
                sys.executable, "-c", KILLED, path, stdout=asyncio.subprocess.PIPE
            )
            assert killed.stdout is not None
            assert await killed.stdout.readline() == b"inside\n"
            killed.kill()
            await killed.wait()
            async with Worker(stores, [short]):
                assert await run.result() == "NEWS"
    [start] = [span for span in spans if span.name == "start short"]
    assert [line for line in tree(spans).splitlines() if "_store." not in line] == [
        "start short [success]",
        "  invoke_workflow short [acquired]",
        "    execute short [completed]",
        "    step write [succeeded]",
    ]
    [run_ready] = [span for span in spans if span.name == "execute short"]
    assert trace_of(run_ready) == trace_of(start)
    assert dict(run_ready.attributes or {})["belay.epoch"] == 2


KILLED_AND_TRACED = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from belay_core import Context, Worker, step, workflow
from belay_drivers.sqlite import open_sqlite

@step(idempotent=True)
async def write(topic: str) -> str:
    return topic

@step
async def pay(topic: str) -> str:
    print("inside", flush=True)
    await asyncio.sleep(60)
    return "never"

@workflow("paid")
async def paid(ctx: Context) -> str:
    return await ctx.step(pay, await ctx.step(write, "news"))

async def main():
    async with open_sqlite(sys.argv[1]) as stores, Worker(stores, [paid]):
        await asyncio.sleep(60)

sent = ConsoleSpanExporter(out=open(sys.argv[2], "w"), formatter=lambda span: span.to_json(indent=None) + "\\n")
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(SimpleSpanProcessor(sent))
trace.set_tracer_provider(provider)
asyncio.run(main())
"""


@step
async def pay(topic: str) -> str:
    raise AssertionError("a step that may not be done twice was")


@workflow("paid")
async def paid(ctx: Context) -> str:
    return await ctx.step(pay, await ctx.step(write, "news"))


def one_of(line: str) -> reading.Seen:
    span = json.loads(line)
    return reading.Seen(
        span["context"]["trace_id"], span["context"]["span_id"], span["parent_id"], span["name"], span["attributes"]
    )


async def test_what_a_killed_worker_had_sent_hangs_in_the_tree(tmp_path):
    sent = tmp_path / "sent.jsonl"
    with recorded_spans() as spans:
        async with open_sqlite(tmp_path / "belay.db") as stores:
            client = Client(stores)
            run = await client.start(paid)
            killed = await asyncio.create_subprocess_exec(
                sys.executable, "-c", KILLED_AND_TRACED, tmp_path / "belay.db", sent, stdout=asyncio.subprocess.PIPE
            )
            assert killed.stdout is not None
            assert await killed.stdout.readline() == b"inside\n"
            killed.kill()
            await killed.wait()
            async with Worker(stores, [paid]):
                while (await client.get(run)).waiting is None:
                    await asyncio.sleep(0.02)
    theirs = [one_of(line) for line in sent.read_text().splitlines()]
    whole = reading.of_run([*theirs, *(one_of(span.to_json()) for span in spans)], run.run_id)
    assert reading.orphans(whole) == []
    assert len(reading.roots(whole)) == 1
    first = ("start paid [success]", "invoke_workflow paid [acquired]")
    found = reading.paths(whole)
    # Two owners, one of which said how it ended. The first had finished a step, and begun another.
    assert found[first] == 2
    assert found[(*first, "execute paid [suspended]")] == 1
    assert found[(*first, "step write [succeeded]")] == 1
    assert found[(*first, "belay.attempt_store.record [recorded]")] == 3


async def test_a_failure_is_marked_and_its_text_is_kept_out():
    with recorded_spans() as spans:
        async with open_sqlite(":memory:") as stores:
            worker = Worker(stores, [failing], background=False)
            await Client(stores).start(failing)
            await worker.dispatcher.take()
            await worker.dispatcher.finish_all()
            await worker.leave()
    lines = [line for line in tree(spans).splitlines() if "_store." not in line]
    assert lines == [
        "start failing [success]",
        "  invoke_workflow failing [acquired]",
        "    execute failing [failed] !",
        "    step fails [failed] !",
    ]
    assert not any("4711-is-a-secret" in span.to_json() for span in spans)


async def test_a_worker_without_telemetry_is_not_observed():
    with recorded_spans() as spans, recorded_counters() as counted:
        async with open_sqlite(":memory:") as stores:
            client = Client(stores, telemetry=False)
            async with Worker(stores, [short], telemetry=False):
                run = await client.start(short)
                assert await run.result() == "NEWS"
    assert spans == []
    assert counted() == {}


async def test_an_idle_worker_sends_nothing():
    with recorded_spans() as spans, recorded_counters() as counted:
        async with open_sqlite(":memory:") as stores, Worker(stores, [short], poll=0.01):
            await asyncio.sleep(0.5)
    assert spans == []
    assert counted() == {}
