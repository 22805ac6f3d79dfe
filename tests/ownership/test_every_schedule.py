"""The heartbeat loop under every duration of its calls, and under a cancellation at every step it takes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest

from belay_core.stores.bundle import LeaseTimes
from belay_core.stores.run_contract import FenceLost
from belay_testing.clock import ManualClock
from tests.ownership.supervising import Bench

DURATIONS = range(0, 60_001, 500)
INTERVAL, TOLERANCE, TAKEN = 1_000, 19_000, 30_001
ENOUGH = 45_000
DOUBTS = {"hangs": INTERVAL, "refused": 0, "fails late": 999}
"""How long after its deadline a lease lapses, by what the store does when asked."""


def tied(duration: int) -> bool:
    """Whether an answer arrives at the very moment of a deadline, so that either may come first."""
    return duration in {(TOLERANCE - INTERVAL) // 2, TOLERANCE - INTERVAL}


def confirmed(duration: int, heartbeats: int | None) -> int | None:
    """When the last heartbeat was sent that is confirmed in time; None where that goes on for ever."""
    sent, last, number = INTERVAL, 0, 0
    while heartbeats is None or number < heartbeats:
        if sent + duration >= last + TOLERANCE:
            return last
        last, sent, number = sent, sent + duration + INTERVAL, number + 1
        if last > ENOUGH:
            return None
    return last


@pytest.mark.parametrize("doubt", sorted(DOUBTS))
@pytest.mark.parametrize("heartbeats", [None, 3, 0])
async def test_work_ends_in_time_however_long_a_heartbeat_takes(caplog, heartbeats, doubt):
    """``heartbeats`` succeed, None is all of them; the others fail after the same time."""
    for duration in DURATIONS:
        bench = Bench(ManualClock(), caplog)
        script = bench.script
        answers = count()
        bench.store.on_heartbeat = lambda _at, script=script, answers=answers, duration=duration: (
            script.after(duration) if heartbeats is None or next(answers) < heartbeats else script.fails(duration)
        )
        doubts = {
            "hangs": script.never(),
            "refused": script.at_once(FenceLost()),
            "fails late": script.fails(999),
        }
        bench.store.on_reconfirm = lambda _at, doubts=doubts: doubts[doubt]
        last = confirmed(duration, heartbeats)
        await bench.begin()
        await bench.until(ENOUGH)
        if bench.alive:
            assert last is None or (tied(duration) and heartbeats is None)
            assert bench.now - bench.store.stored < TOLERANCE
        else:
            assert bench.stopped_at is not None
            assert bench.stopped_at - bench.store.stored <= TOLERANCE + INTERVAL < TAKEN
            assert bench.lapses == [TOLERANCE]
            if not tied(duration):
                assert last is not None
                assert bench.stopped_at == last + TOLERANCE + DOUBTS[doubt]
        await bench.end(collect=False)
        assert len(bench.lapses) <= 1


# ---------------------------------------------------------------- a cancellation at every step

SHORT = LeaseTimes(interval_ms=100, stale_after_ms=900, skew_ms=400)
"""Tolerance 400: few steps, of every kind."""


def healthy(bench: Bench) -> None:
    bench.store.on_heartbeat = lambda _at: bench.script.after(30)


def ambiguous(bench: Bench) -> None:
    async def receipt(unconfirmed: int) -> None:
        bench.reconfirmed.append(unconfirmed)
        await bench.clock.sleep(0.05)

    bench.options["on_reconfirm"] = receipt
    bench.store.on_heartbeat = lambda at: bench.script.never() if at == 200 else bench.script.fails()
    bench.store.on_reconfirm = lambda at: bench.script.after(50) if at < 500 else bench.script.never()


def lapsing(bench: Bench) -> None:
    async def receipt(unconfirmed: int) -> None:
        bench.lapses.append(unconfirmed)
        await bench.clock.sleep(0.05)

    bench.options["on_lapse"] = receipt
    bench.store.on_heartbeat = lambda _at: bench.script.fails()
    bench.store.on_reconfirm = lambda _at: bench.script.fails(50)


def taken(bench: Bench) -> None:
    bench.store.on_heartbeat = lambda at: bench.script.after(20, FenceLost() if at > 200 else None)


async def steps(bench: Bench) -> AsyncIterator[int]:
    """Every pass of the event loop until the work has ended or a second is over; time moves on when all is quiet."""
    passed = 0
    await asyncio.sleep(0)
    while bench.now < 1_000 and not bench.task.done():
        for _ in range(8):
            yield passed
            passed += 1
            await asyncio.sleep(0)
        due = bench._next_due()
        bench.clock.advance((1_000 if due is None else due) - bench.now)


def inner(bench: Bench) -> list["asyncio.Task[object]"]:
    """The tasks of the loop in the order they began, without the work and who waits for both."""
    others = asyncio.all_tasks() - {asyncio.current_task(), bench.task}
    return sorted(others, key=lambda task: int(task.get_name().rpartition("-")[2]))[1:]


LAPSES = {healthy: None, ambiguous: 900, lapsing: 450, taken: None}
"""When the lease of each scenario lapses, if nobody interferes."""


@pytest.mark.parametrize("scenario", LAPSES)
async def test_a_cancellation_at_any_step_leaves_nothing_behind_and_is_no_lapse(caplog, scenario):
    for at in count():
        bench = await begun(scenario, caplog)
        reached = False
        async for step in steps(bench):
            if step == at:
                reached = True
                bench.task.cancel()
                break
        await bench.end(collect=False)
        assert bench.task.cancelled()
        lapsed = LAPSES[scenario]
        if lapsed is None or bench.now < lapsed:
            assert bench.lapses == []
        elif bench.now > lapsed:
            assert len(bench.lapses) == 1
        if not reached:
            break
    assert at > 40


@pytest.mark.parametrize("scenario", LAPSES)
@pytest.mark.parametrize("place", [0, 1, 2, 3])
async def test_a_task_of_the_loop_that_is_cancelled_by_somebody_ends_it_or_is_made_up_for(caplog, scenario, place):
    for at in count():
        bench = await begun(scenario, caplog)
        reached = False
        async for step in steps(bench):
            if step == at:
                reached = True
                found = inner(bench)
                if place < len(found):
                    found[place].cancel()
        await bench.end(collect=False)
        assert len(bench.lapses) <= 1
        if not reached:
            break


async def begun(scenario: Callable[[Bench], None], caplog: pytest.LogCaptureFixture) -> Bench:
    bench = Bench(ManualClock(), caplog)
    bench.options["lease"] = SHORT
    scenario(bench)
    await bench.begin(settle=False)
    return bench
