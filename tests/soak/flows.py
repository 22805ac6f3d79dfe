"""Workflows of the soak, and the ledger in which their steps and bodies write what they did and saw.

The ledger is a file of lines that belay knows nothing of: a line is there as soon as it is written, whatever becomes of
the process. Within a run every call has a number of its own, under which effect and answer are compared.
"""

import asyncio
import itertools
import json
import os
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

from belay_core import Approved, Context, StepFailed, current_step, step, workflow

EDIT = 1_000_000
"""What an edit adds to the number that a gate shows."""


class Ledger:
    """Appends lines to a file; each is one write."""

    def __init__(self) -> None:
        self._file = -1
        self._bodies = itertools.count()

    def open(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, kind: str, **facts: Any) -> None:
        os.write(self._file, (json.dumps({"kind": kind, "pid": os.getpid(), **facts}) + "\n").encode())

    def next_body(self) -> str:
        return f"{os.getpid()}-{next(self._bodies)}"


LEDGER = Ledger()


def _effect(kind: str, number: int) -> None:
    current = current_step()
    LEDGER.write(kind, run=current.run_id, key=current.key, step=current.name, number=number)


async def _worked(number: int, seconds: float) -> int:
    _effect("begin", number)
    await asyncio.sleep(seconds)
    _effect("done", number)
    return number


@step(idempotent=True, retries=20)
async def look(number: int, seconds: float) -> int:
    return await _worked(number, seconds)


@step(idempotent=True, retries=20)
def count(number: int, seconds: float) -> int:
    _effect("begin", number)
    _effect("done", number)
    return number


@step
async def pay(number: int, seconds: float) -> int:
    return await _worked(number, seconds)


@step(retries=3)
async def flaky(number: int, seconds: float) -> int:
    _effect("begin", number)
    await asyncio.sleep(seconds)
    if current_step().attempt < 3:
        _effect("raised", number)
        raise OSError("down")
    _effect("done", number)
    return number


class Body:
    """One execution of a body: what it is answered is written, in order."""

    def __init__(self, ctx: Context, seed: int) -> None:
        self.ctx = ctx
        self.rng = random.Random(seed)  # noqa: S311  (the same body for the same input)
        self._name = LEDGER.next_body()
        self._numbers = itertools.count()
        self._heard = itertools.count()

    @property
    def seconds(self) -> float:
        return self.rng.choice([0, 0, 0.01, 0.05, 0.2])

    def heard(self, what: str, *facts: Any) -> None:
        LEDGER.write("heard", run=self.ctx.run_id, body=self._name, at=next(self._heard), what=[what, *facts])

    def call(self, kind: Any, ctx: Context | None = None) -> Any:
        return (ctx or self.ctx).step(kind, next(self._numbers), self.seconds)

    async def answered(self, call: Any) -> Any:
        try:
            found = await call
        except StepFailed as failed:
            self.heard("failed", failed.type)
            return None
        self.heard("answer", found)
        return found


async def chain(body: Body) -> None:
    """One after the other."""
    for _ in range(body.rng.randint(2, 6)):
        await body.answered(body.call(body.rng.choice([look, count, pay, pay, flaky])))


async def race(body: Body) -> None:
    """The first of several; the others are given up, and the winner decides what is done."""
    tasks = [asyncio.create_task(body.call(look)) for _ in range(3)]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    first = min(tasks.index(task) for task in done)
    body.heard("first", first)
    await asyncio.gather(*tasks, return_exceptions=True)
    await body.answered(body.call(pay))


async def limited(body: Body) -> None:
    """The author's own time-out round a step that may or may not be in time."""
    try:
        async with asyncio.timeout(body.rng.choice([0.02, 0.1])):
            found = await body.call(look)
    except TimeoutError:
        body.heard("timeout")
        await body.answered(body.call(pay))
    else:
        body.heard("answer", found)


async def stream(body: Body) -> None:
    """Answers as they come."""
    tasks = [asyncio.create_task(body.call(look)) for _ in range(4)]
    for task in asyncio.as_completed(tasks):
        body.heard("next", await task)


async def fan(body: Body) -> None:
    """Items of a map, each with an effect that is not to be repeated."""

    async def item(ctx: Context, number: int) -> int:
        first = await ctx.step(look, number, 0.01)
        return await ctx.step(pay, 1_000 + first, 0.02)

    body.heard("all", await body.ctx.map(item, range(100, 105), limit=3))


async def ask(body: Body) -> None:
    """A person decides; what is paid is what was decided."""
    number = next(body._numbers)
    answer = await body.ctx.gate("clerk", subject=number)
    body.heard("gate", type(answer).__name__, getattr(answer, "subject", None))
    if isinstance(answer, Approved):
        paid = await body.ctx.step(pay, answer.subject, 0.01)
        body.heard("answer", paid)


async def wait_for_person(body: Body) -> None:
    """A person who may be too late."""
    try:
        async with asyncio.timeout(0.5):
            answer = await body.ctx.gate("late", subject=1)
    except TimeoutError:
        body.heard("nobody")
        await body.answered(body.call(pay))
    else:
        body.heard("somebody", type(answer).__name__)


async def nap(body: Body) -> None:
    """A durable sleep between two effects."""
    await body.answered(body.call(pay))
    await body.ctx.sleep(timedelta(seconds=body.rng.choice([0.1, 1, 3])))
    await body.answered(body.call(look))


PARTS = (chain, race, limited, stream, fan, ask, wait_for_person, nap)


@workflow("soak")
async def soak(ctx: Context, seed: int) -> int:
    """Some of the parts above, in an order that the seed gives."""
    body = Body(ctx, seed)
    for part in body.rng.sample(PARTS, k=body.rng.randint(1, 4)):
        body.heard(part.__name__)
        await part(body)
    body.heard("end")
    return seed
