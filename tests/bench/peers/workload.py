"""What every peer does: the same runs, for the same time, counted alike, as one line of JSON.

Imports nothing but the standard library: it runs in the peers' environment.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

RESULT = "r" * 98
"""What a step answers: 100 bytes as JSON."""
STARTERS = 50
"""Coroutines that hand runs to a queue."""


Ended: TypeAlias = Callable[[list[Any]], Awaitable[None]]
"""Comes back when the runs of these handles have completed."""


@dataclass
class Tally:
    """What happened between ``begin`` and ``end``: seconds each step and each run took."""

    steps: list[float] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)
    wall: float = 0.0
    cpu: float = 0.0
    _open: bool = False

    def step(self, began: float) -> None:
        """A step that began then has been recorded now."""
        if self._open:
            self.steps.append(time.perf_counter() - began)

    def run(self, began: float) -> None:
        """A run that began then has ended now."""
        if self._open:
            self.runs.append(time.perf_counter() - began)

    def begin(self) -> None:
        _tune_gc()
        self._open, self.wall, self.cpu = True, time.perf_counter(), time.process_time()

    def end(self) -> None:
        self._open = False
        self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu


@dataclass(frozen=True)
class Asked:
    """What a program is told by its arguments."""

    url: str
    concurrency: int
    steps: int
    seconds: float
    warm_up: float
    queued: int


def asked(arguments: Sequence[str] | None = None) -> Asked:
    """The arguments of a peer's program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True, help="the database, or where the server listens")
    parser.add_argument("--concurrency", type=int, default=50, help="runs at a time")
    parser.add_argument("--steps", type=int, default=10, help="steps of a run")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long is measured")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds before that")
    parser.add_argument("--queue", type=int, default=0, dest="queued", help="so many runs through the queue instead")
    return Asked(**vars(parser.parse_args(arguments)))


async def closed_loop(given: Asked, tally: Tally, one: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """So many runs at a time, each followed by the next, until the time is over. What ended in it counts."""

    async def again() -> None:
        while True:
            began = time.perf_counter()
            await one()
            tally.run(began)

    tasks = [asyncio.ensure_future(again()) for _ in range(given.concurrency)]
    await _counted(given, tally, tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return loop_figures(given, tally)


async def standing_work(given: Asked, tally: Tally, worker: Coroutine[Any, Any, object]) -> dict[str, float]:
    """As ``closed_loop``, for a peer whose worker takes runs that wait for it already."""
    task = asyncio.ensure_future(worker)
    await _counted(given, tally, [task])
    return loop_figures(given, tally)


async def _counted(given: Asked, tally: Tally, tasks: Sequence["asyncio.Future[Any]"]) -> None:
    for seconds, after in ((given.warm_up, tally.begin), (given.seconds, tally.end)):
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            raise RuntimeError("the work ended before the time did")
        after()


def loop_figures(given: Asked, tally: Tally) -> dict[str, float]:
    """Under the names that ``tests.bench.loop`` uses."""
    figures = {
        "workflows_per_s": len(tally.runs) / tally.wall,
        "steps_per_s": (len(tally.steps) or len(tally.runs) * given.steps) / tally.wall,
        "load": os.getloadavg()[0],
    }
    if tally.steps:
        figures["step_p50_ms"] = percentile(tally.steps, 50) * 1e3
        figures["step_p99_ms"] = percentile(tally.steps, 99) * 1e3
        figures["client_us_per_step"] = tally.cpu / len(tally.steps) * 1e6
    if tally.runs:
        figures["workflow_p50_ms"] = percentile(tally.runs, 50) * 1e3
    return figures


def _tune_gc() -> None:
    """The collector looks as seldom as in ``belay worker``, whosever program it is; belay may not be there to ask."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


async def by_starters(number: int, start: Callable[[int], Awaitable[Any]]) -> list[Any]:
    """Hand in so many runs from fifty coroutines; what each hand-in answered."""
    turns = iter(range(number))

    async def starter() -> list[Any]:
        return [await start(turn) for turn in turns]

    return [each for some in await asyncio.gather(*(starter() for _ in range(STARTERS))) for each in some]


async def queue_figures(given: Asked, start: Callable[[int], Awaitable[Any]], ended: Ended) -> dict[str, float]:
    """From the first hand-in until ``ended(handles)`` is over: all runs are completed. A few go before, to warm up."""
    await ended(await by_starters(STARTERS, start))
    _tune_gc()
    began = time.perf_counter()
    handles = await by_starters(given.queued, start)
    started = time.perf_counter() - began
    await ended(handles)
    return {
        "runs_per_s": given.queued / (time.perf_counter() - began),
        "starts_per_s": given.queued / started,
        "load": os.getloadavg()[0],
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))]


def reported(figures: dict[str, float]) -> None:
    """Say it, and end: what a peer still has in its threads is not waited for."""
    sys.stdout.write(json.dumps({name: round(value, 4) for name, value in figures.items()}) + "\n")
    sys.stdout.flush()
    os._exit(0)
