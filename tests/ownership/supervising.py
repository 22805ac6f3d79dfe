"""A bench for the heartbeat loop: a store that answers as told, work that notices its end, and time moved by hand."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from belay_core.errors import DatabaseError, RunStoreError
from belay_core.ids import RunId
from belay_core.ownership.heartbeat_loop import heartbeat_loop, owned
from belay_core.records.owner import OwnerId
from belay_core.stores.run_contract import HeartbeatOutcome, Updated
from belay_testing.clock import ManualClock

RUN = RunId("run-1")
OWNER = OwnerId("host-a", 101, "owner-a")
PASSES = 12
"""Passes of the event loop after which nothing happens any more unless time moves."""

Answer = Callable[[int], Awaitable[HeartbeatOutcome]]
"""What a store answers to a reading."""


def failing() -> RunStoreError:
    cause = {"category": "io", "cause": DatabaseError("io")}
    return RunStoreError("persistence_failed", "heartbeat", "database operation failed", cause)


class Script:
    """Answers to heartbeats: immediate ones, late ones, failures, and silence."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def at_once(self, outcome: HeartbeatOutcome | None = None) -> Answer:
        return self.after(0, outcome)

    def after(self, ms: float, outcome: HeartbeatOutcome | BaseException | None = None) -> Answer:
        async def answer(now_ms: int) -> HeartbeatOutcome:
            if ms:
                await self.clock.sleep(ms / 1000)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome or Updated()

        return answer

    def fails(self, ms: float = 0) -> Answer:
        async def answer(now_ms: int) -> HeartbeatOutcome:
            if ms:
                await self.clock.sleep(ms / 1000)
            raise failing()

        return answer

    def never(self) -> Answer:
        async def answer(now_ms: int) -> HeartbeatOutcome:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        return answer


class DoubleStore:
    """Answers from two scripts, and remembers which readings it was sent and which of them it stored."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.start = int(clock.now())
        self.on_heartbeat: Callable[[int], Answer] = lambda _at: Script(clock).at_once()
        self.on_reconfirm: Callable[[int], Answer] = lambda _at: Script(clock).at_once()
        self.beats: list[int] = []
        self.doubts: list[int] = []
        self.stored = 0
        self.cut = 0

    async def heartbeat(self, run_id: RunId, owner: OwnerId, now_ms: int) -> HeartbeatOutcome:
        assert (run_id, owner) == (RUN, OWNER)
        self.beats.append(now_ms - self.start)
        return await self._answer(self.on_heartbeat, now_ms)

    async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: int) -> HeartbeatOutcome:
        assert (run_id, owner) == (RUN, OWNER)
        self.doubts.append(now_ms - self.start)
        return await self._answer(self.on_reconfirm, now_ms)

    async def _answer(self, script: Callable[[int], Answer], now_ms: int) -> HeartbeatOutcome:
        at = now_ms - self.start
        try:
            answer = await script(at)(now_ms)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        if isinstance(answer, Updated):
            self.stored = max(self.stored, at)
        return answer

    async def transition_owned(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the loop moves no run on")


class Bench:
    """One loop beside one piece of work; moments are milliseconds since it began."""

    def __init__(self, clock: ManualClock, caplog: pytest.LogCaptureFixture, store: Any = None) -> None:
        self.clock = clock
        self.log = caplog
        self.script = Script(clock)
        self.store = store or DoubleStore(clock)
        self.lapses: list[int] = []
        self.reconfirmed: list[int] = []
        self.stopped_at: float | None = None
        self.options: dict[str, Any] = {"on_lapse": self._lapsed, "on_reconfirm": self._reconfirmed}
        self.complaints: list[dict[str, Any]] = []
        self._began = clock.elapsed()

    async def _lapsed(self, unconfirmed: int) -> None:
        self.lapses.append(unconfirmed)

    async def _reconfirmed(self, unconfirmed: int) -> None:
        self.reconfirmed.append(unconfirmed)

    @property
    def now(self) -> float:
        return self.clock.elapsed() - self._began

    async def work(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.stopped_at = self.now

    def loop(self) -> Any:
        return heartbeat_loop(self.store, RUN, OWNER, self.clock, **self.options)

    async def begin(self, work: Any = None, *, settle: bool = True) -> "asyncio.Task[Any]":
        """Start the loop and its work."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.complaints.append(context))
        self.task = asyncio.ensure_future(owned(work or self.work(), self.loop()))
        if settle:
            await self.settle()
        return self.task

    async def settle(self, passes: int = PASSES) -> None:
        for _ in range(passes):
            await asyncio.sleep(0)

    async def until(self, moment: float) -> None:
        """Move time on, stopping wherever somebody wakes up."""
        await self.settle()
        while (due := self._next_due()) is not None and due <= moment:
            self.clock.advance(due - self.now)
            await self.settle()
        self.clock.advance(moment - self.now)
        await self.settle()

    def _next_due(self) -> float | None:
        sleepers = [due - self._began for due, _, sleeper in self.clock._sleepers if not sleeper.done()]
        return min(sleepers, default=None)

    @property
    def alive(self) -> bool:
        return self.stopped_at is None and not self.task.done()

    @property
    def warnings(self) -> list[str]:
        return [record.getMessage() for record in self.log.records if record.levelno >= logging.WARNING]

    def logged(self, message: str, name: str) -> Any:
        [record] = [record for record in self.log.records if record.getMessage() == message]
        return getattr(record, name)

    async def end(self, *, collect: bool = True) -> None:
        """Cancel whatever is left; nothing may remain of the loop."""
        self.task.cancel()
        await self.no_leak(collect=collect)

    async def no_leak(self, *, collect: bool = True) -> None:
        """No task, no sleeper, and nothing that asyncio would report when it is collected."""
        await self.settle()
        assert self.task.done()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert all(sleeper.done() for *_, sleeper in self.clock._sleepers)
        with suppress(asyncio.CancelledError):
            self.task.exception()
        if collect:
            gc.collect()
        assert self.complaints == []
