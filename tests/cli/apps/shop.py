"""The workflows that the tests of the command run."""

import asyncio
import gc
import logging
import os
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from belay_core import Approved, Context, Lapsed, Rejected, step, workflow


@dataclass
class Order:
    item: str
    amount: int


@step(idempotent=True)
async def shout(text: str) -> str:
    return text.upper()


@step(idempotent=True)
async def chat(text: str) -> None:
    """Logs what it was given, and an exception that carries it."""
    logging.getLogger("shop").warning("got %s", text)
    try:
        await spoil.fn(text)
    except ValueError:
        logging.getLogger("shop").exception("and failed")


@step(idempotent=True)
async def spoil(text: str) -> str:
    raise ValueError(text)


@step
async def charge(text: str) -> Any:
    """The effect takes place, and its result cannot be kept: nobody knows how it ended."""
    return object()


@step(idempotent=True)
async def hold(folder: str) -> int:
    """Says that it has begun, and ends once it may; its answer is the process that did."""
    marks = Path(folder)
    (marks / f"began-{os.getpid()}").touch()
    while not (marks / "go").exists():
        await asyncio.sleep(0.02)
    return os.getpid()


@step
def stick(folder: str) -> None:
    """Hangs in its thread."""
    (Path(folder) / f"began-{os.getpid()}").touch()
    threading.Event().wait()


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return await ctx.step(shout, name)


@workflow("ping")
async def ping(ctx: Context) -> str:
    return "pong"


@workflow("tidy")
async def tidy(ctx: Context) -> tuple[int, bool]:
    """How many new objects there may be until the collector looks, and whether those that were loaded stay."""
    return gc.get_threshold()[0], gc.get_freeze_count() > 0


@workflow("order")
async def order(ctx: Context, order: Order) -> int:
    return order.amount


@workflow("broken")
async def broken(ctx: Context, text: str) -> str:
    return await ctx.step(spoil, text)


@workflow("chatty")
async def chatty(ctx: Context, text: str) -> None:
    await ctx.step(chat, text)


@workflow("letter")
async def letter(ctx: Context, draft: str) -> str:
    answer = await ctx.gate("editor", subject=draft)
    match answer:
        case Approved(subject=text):
            return f"sent {text}"
        case Rejected(reason=why):
            return f"dropped: {why}"


@workflow("hasty")
async def hasty(ctx: Context, draft: str) -> str:
    match await ctx.gate("editor", subject=draft, lapse_after=timedelta(milliseconds=1)):
        case Lapsed():
            return "nobody looked"
        case _:
            return "somebody looked"


async def _asked(ctx: Context, draft: str) -> str:
    answer = await ctx.gate("editor", subject=draft)
    return type(answer).__name__


async def _counted(ctx: Context, draft: str) -> str:
    answer = await ctx.gate("lawyer", subject=draft)
    return type(answer).__name__


@workflow("letters")
async def letters(ctx: Context, drafts: list[str]) -> list[str]:
    """As many gates of one name as there are drafts."""
    return await ctx.map(_asked, drafts)


@workflow("contract")
async def contract(ctx: Context, draft: str) -> list[str]:
    """Two gates of different names, side by side."""
    one, other = await asyncio.gather(ctx.map(_asked, [draft]), ctx.map(_counted, [draft]))
    return one + other


@workflow("charges")
async def charges(ctx: Context, names: list[str]) -> int:
    return len(await ctx.map(charge, names))


@workflow("nap")
async def nap(ctx: Context) -> None:
    await ctx.sleep(timedelta(days=3))


@workflow("held")
async def held(ctx: Context, folder: str) -> int:
    return await ctx.step(hold, folder)


@workflow("stuck")
async def stuck(ctx: Context, folder: str) -> None:
    await ctx.step(stick, folder)


app = [greet, ping, order, broken, chatty, letter, hasty, letters, contract, charges, nap, held, stuck, tidy]
nothing: list[object] = []
number = 7
twice = (greet, greet)
