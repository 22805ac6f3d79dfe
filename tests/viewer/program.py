"""The program whose traces are looked at: workflows, and a worker that with ``--hang`` never gets out of some steps."""

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import entry_points

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from belay_core import Approved, Context, Worker, step, workflow
from belay_drivers.sqlite import open_sqlite

SECRET = "4711-is-a-secret"
HANGS = "--hang" in sys.argv


@step(idempotent=True)
async def write(topic: str) -> str:
    return f"about {topic}"


@step(idempotent=True)
async def translate(text: str) -> str:
    await _maybe_for_ever()
    return text.upper()


@step
def send(text: str) -> str:
    return f"sent: {text}"


@step
async def pay(amount: int) -> str:
    await _maybe_for_ever()
    return f"receipt over {amount}"


@step(idempotent=True)
def confirm(receipt: str) -> str:
    return f"{receipt}, confirmed"


@workflow("letter")
async def letter(ctx: Context, topic: str) -> str:
    written = await ctx.step(translate, await ctx.step(write, topic))
    answer = await ctx.gate("editor", subject=written)
    return await ctx.step(send, answer.subject) if isinstance(answer, Approved) else "dropped"


@workflow("payment")
async def payment(ctx: Context, amount: int) -> str:
    return await ctx.step(confirm, await ctx.step(pay, amount))


async def _maybe_for_ever() -> None:
    if HANGS:
        sys.stdout.write("inside\n")
        sys.stdout.flush()
        await asyncio.sleep(3_600)


@contextmanager
def traced(endpoint: str, project: str, service: str) -> Generator[None]:
    """Spans go to the viewer by OTLP over HTTP, a fifth of a second after they ended at the latest."""
    [exporter] = entry_points(group="opentelemetry_traces_exporter", name="otlp_proto_http")
    provider = TracerProvider(resource=Resource({"service.name": service, "openinference.project.name": project}))
    provider.add_span_processor(
        BatchSpanProcessor(exporter.load()(endpoint=f"{endpoint}/v1/traces"), schedule_delay_millis=200)
    )
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


async def work(database: str) -> None:
    """Work until SIGTERM."""
    async with open_sqlite(database) as stores:
        await Worker(stores, [letter, payment]).run()


if __name__ == "__main__":
    with traced(*sys.argv[1:4]):
        asyncio.run(work(sys.argv[4]))
