"""The board: answers are delivered in the recorded order, however many look on."""

import asyncio

import pytest

from belay_core.engine.board import Board, Call
from belay_core.engine.ticking import Ticks
from belay_core.records.workflow_run import Waiting
from belay_core.workflows.scope import Scope
from belay_testing.clock import ManualClock


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def opened(board: Board, scope: Scope, key: str) -> Call:
    scope.unopened += 1
    return board.open(key, scope)


@pytest.mark.parametrize("watched", [False, True])
async def test_code_has_its_turns_of_the_loop_also_while_somebody_waits_for_the_run_to_be_idle(watched):
    board, heard = Board(ManualClock(), 0.0, Ticks()), []
    slow, quick, sleeping = (Scope("run", f"{name}/", 0) for name in ("slow", "quick", "sleeping"))
    for scope in (slow, quick, sleeping):
        board.open_scope(scope)

    async def sleeps() -> None:
        board.waits(opened(board, sleeping, "sleeping/sleep#1"), Waiting("timer", "sleeping/sleep#1"))
        await asyncio.Event().wait()

    async def takes_its_time() -> None:
        await turns(11)
        await board.turn(opened(board, slow, "slow/a#1"), 1)
        heard.append(1)

    async def is_there_at_once() -> None:
        await turns(2)
        await board.turn(opened(board, quick, "quick/b#1"), 2)
        heard.append(2)

    waiting = asyncio.ensure_future(sleeps())
    await turns(1)
    idle = asyncio.ensure_future(board.idle() if watched else asyncio.Event().wait())
    await turns(1)
    await asyncio.gather(takes_its_time(), is_there_at_once())
    assert heard == [1, 2]
    for task in (waiting, idle):
        task.cancel()
    board.stop()
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
