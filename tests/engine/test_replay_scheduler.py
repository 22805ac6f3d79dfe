"""The replay scheduler: results are delivered in the recorded order, to any number of waiters."""

import asyncio

import pytest

from belay_core.engine.loop_iterations import LoopIterations
from belay_core.engine.recorded_order import RecordedOrder
from belay_core.engine.replay import Call, ReplayScheduler
from belay_core.records.workflow_run import RunWait
from belay_core.workflows.scope import Scope
from belay_testing.clock import ManualClock


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def opened(replay: ReplayScheduler, scope: Scope, key: str) -> Call:
    scope.unopened += 1
    return replay.open(key, scope)


@pytest.mark.parametrize("watched", [False, True])
async def test_code_has_its_turns_of_the_loop_also_while_somebody_waits_for_the_run_to_be_idle(watched):
    replay, heard = ReplayScheduler(ManualClock(), 0.0, LoopIterations(), RecordedOrder((), "")), []
    slow, quick, sleeping = (Scope("run", f"{name}/", 0) for name in ("slow", "quick", "sleeping"))
    for scope in (slow, quick, sleeping):
        replay.open_scope(scope)

    async def sleeps() -> None:
        replay.waits(opened(replay, sleeping, "sleeping/sleep#1"), RunWait("timer", "sleeping/sleep#1"))
        await asyncio.Event().wait()

    async def takes_its_time() -> None:
        await turns(11)
        await replay.turn(opened(replay, slow, "slow/a#1"), 1)
        heard.append(1)

    async def is_there_at_once() -> None:
        await turns(2)
        await replay.turn(opened(replay, quick, "quick/b#1"), 2)
        heard.append(2)

    waiting = asyncio.ensure_future(sleeps())
    await turns(1)
    idle = asyncio.ensure_future(replay.idle() if watched else asyncio.Event().wait())
    await turns(1)
    await asyncio.gather(takes_its_time(), is_there_at_once())
    assert heard == [1, 2]
    for task in (waiting, idle):
        task.cancel()
    replay.stop()
    await asyncio.wait([waiting, idle])


async def test_a_scope_whose_task_has_ended_is_over_whether_or_not_the_task_is_forgotten():
    scope = Scope("run", "", 0)
    scope.task = asyncio.create_task(asyncio.sleep(0))
    scope.forget_task()
    assert (scope.task is None, scope.over) == (False, False)
    await scope.task
    assert scope.over
    scope.forget_task()
    assert (scope.task, scope.over) == (None, True)
