"""What every peer is counted by."""

import asyncio
import time

import pytest

from tests.bench.peers.workload import Asked, Tally, asked, by_starters, closed_loop, percentile, queue_figures
from tests.bench.peers.workload import standing_work as standing


def given(queued: int = 0) -> Asked:
    return Asked(url="", concurrency=5, steps=2, seconds=0.1, warm_up=0.05, queued=queued)


async def test_a_closed_loop_keeps_so_many_runs_going_and_counts_what_ends_in_its_time():
    tally, now, most, all_runs, all_steps = Tally(), 0, 0, 0, 0

    async def run() -> None:
        nonlocal now, most, all_runs, all_steps
        now, most = now + 1, max(most, now + 1)
        for _ in range(2):
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            tally.step(began)
            all_steps += 1
        now, all_runs = now - 1, all_runs + 1

    figures = await closed_loop(given(), tally, run)
    assert most == 5
    assert 0 < len(tally.runs) < all_runs, "the warm-up is not counted"
    assert 0 < len(tally.steps) < all_steps
    assert figures["steps_per_s"] == pytest.approx(len(tally.steps) / tally.wall)
    assert 5 <= figures["step_p50_ms"] <= figures["step_p99_ms"]
    assert figures["workflow_p50_ms"] >= 10


async def test_a_peer_whose_steps_are_not_seen_is_counted_by_its_runs():
    tally = Tally()
    figures = await closed_loop(given(), tally, lambda: asyncio.sleep(0.005))
    assert figures["steps_per_s"] == pytest.approx(2 * figures["workflows_per_s"])
    assert "step_p50_ms" not in figures


async def test_a_run_that_fails_ends_the_loop():
    async def fails() -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await closed_loop(given(), Tally(), fails)


async def test_work_that_runs_out_before_the_time_is_refused():
    with pytest.raises(RuntimeError, match="before the time"):
        await standing(given(), Tally(), asyncio.sleep(0))


async def test_fifty_coroutines_hand_in_all_runs_once():
    now, most = 0, 0

    async def start(turn: int) -> int:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0)
        now -= 1
        return turn

    assert sorted(await by_starters(200, start)) == list(range(200))
    assert most == 50


async def test_a_queue_is_counted_until_its_last_run_has_ended():
    async def start(turn: int) -> int:
        return turn

    async def ended(handles: list[int]) -> None:
        await asyncio.sleep(0.05)

    figures = await queue_figures(given(queued=100), start, ended)
    assert 500 < figures["runs_per_s"] <= 100 / 0.05
    assert figures["starts_per_s"] > figures["runs_per_s"]


def test_percentiles():
    values = [float(each) for each in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 99), percentile([7.0], 99)) == (51, 100, 7)


def test_a_program_takes_its_arguments():
    assert asked(["--url", "u", "--concurrency", "1", "--seconds", "4", "--warm-up", "1", "--queue", "7"]) == Asked(
        "u", 1, 10, 4.0, 1.0, 7
    )
