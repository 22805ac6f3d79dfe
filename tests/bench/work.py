"""The workflow that is measured: a number of steps one after the other, each with a result of some length."""

import json
import random
import string
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from belay_core import Context, step, workflow
from belay_core.records import commands
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.stores.runs import Acquired

PAYLOAD = 100
"""Bytes of a result, where nothing else is asked for."""


@dataclass
class Seen:
    """What the bodies of this process have seen."""

    steps: list[float] = field(default_factory=list[float])
    """Seconds of each step, in the order in which they ended."""
    ended: set[str] = field(default_factory=set[str])
    """The runs whose body has come to its end."""
    text: str = ""
    """What each step gives."""

    def give(self, size: int) -> None:
        """Have steps give a text of this length, which does not pack well."""
        self.text = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=max(0, size - 2)))  # noqa: S311

    def clear(self) -> None:
        """Forget what was seen."""
        self.steps.clear()
        self.ended.clear()


SEEN = Seen()


@step(idempotent=True)
async def kept(number: int) -> str:
    """A step that may be executed again."""
    return SEEN.text


@step
async def once(number: int) -> str:
    """A step that must not be executed again in silence."""
    return SEEN.text


@workflow("bench-kept")
async def kept_steps(ctx: Context, steps: int) -> int:
    """So many idempotent steps."""
    clock: Callable[[], float] = time.perf_counter
    for number in range(steps):
        began = clock()
        await ctx.step(kept, number)
        SEEN.steps.append(clock() - began)
    SEEN.ended.add(ctx.run_id)
    return steps


@workflow("bench-once")
async def once_steps(ctx: Context, steps: int) -> int:
    """So many steps that are not idempotent."""
    clock: Callable[[], float] = time.perf_counter
    for number in range(steps):
        began = clock()
        await ctx.step(once, number)
        SEEN.steps.append(clock() - began)
    SEEN.ended.add(ctx.run_id)
    return steps


def done(acquired: Acquired, numbers: range, text: str) -> commands.Record:
    """The command that records so many of a run's first steps as done, in one go."""
    at = acquired.run.created_at_ms
    attempts = tuple(
        StepRecord(
            step_key=f"{kept.name}#{number}",
            attempt=1,
            step=kept.name,
            kind=StepKind.STEP,
            state=StepState.SUCCEEDED,
            idempotent=True,
            started_at_ms=at,
            finished_at_ms=at,
            recorded=number,
            outcome=json.dumps(text),
        )
        for number in numbers
    )
    return commands.Record(acquired.lease, attempts)
