"""Durable sleeps: the moment is fixed when the sleep begins (kernel 13 and 15)."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from belay_core.engine.answers import Answer
from belay_core.engine.body_execution import BodyExecution, EngineTask
from belay_core.engine.replay import Call
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import RunWait
from belay_core.values import json


class SleepCall:
    """One ``ctx.sleep`` call of one play."""

    def __init__(self, execution: BodyExecution, duration: timedelta, call: Call) -> None:
        self._execution = execution
        self._call = call
        self._duration = duration
        self._begun: StepRecord | None = None

    async def answer(self) -> None:
        """Come back when the sleep is over, or at once where it was over before."""
        attempts = self._execution.records.reach(self._call.key)
        self._execution.check(self._call.key, StepKind.SLEEP, None, attempts)
        if attempts and attempts[-1].state is not StepState.WAITING:
            await self._execution.give(self._call, Answer(attempts[-1]))
            return
        self._begun = attempts[-1] if attempts else None
        await self._execution.perform(self._call, self._sleep, self._cancel)

    async def _sleep(self) -> Answer:
        if self._begun is None:
            await self._execution.replay.caught_up()
            await self._execution.require_unheld(self._call)
            self._begun = self._begin()
            await self._execution.handle.begin_sleep(self._begun)
        facts = json.decode(self._begun.meta)
        wake_at = facts.get("wake_at") if isinstance(facts, dict) else None
        if type(wake_at) is not int:
            self._execution.send_to_review("undecodable", self._call.key, "the sleep has no moment to wake at")
        await self._execution.wait_for(self._call, RunWait("timer", self._call.key, wake_at), wake_at)
        return Answer(await self._end(self._begun, StepState.SUCCEEDED))

    async def _cancel(self, task: EngineTask[Answer | None]) -> StepRecord | None:
        await asyncio.wait([task])
        return await self._end(self._begun or self._begin(), StepState.CANCELLED) if task.cancelled() else None

    def _begin(self) -> StepRecord:
        now = self._execution.services.now()
        wake_at = now + int(self._duration.total_seconds() * 1000)
        return StepRecord(
            step_key=self._call.key,
            attempt=1,
            step="sleep",
            kind=StepKind.SLEEP,
            state=StepState.WAITING,
            idempotent=True,
            started_at_ms=now,
            meta=self._execution.replay.origin(self._call, {"wake_at": wake_at}),
        )

    async def _end(self, begun: StepRecord, state: StepState) -> StepRecord:
        place, now = self._execution.replay.next_place(self._call), self._execution.services.now()
        meta = self._execution.replay.ended_origin(self._call, begun)
        ended = replace(begun, state=state, recorded=place, finished_at_ms=now, meta=meta)
        await self._execution.handle.record(ended)
        return ended
