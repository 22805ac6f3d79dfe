"""The heartbeat loop, to the millisecond (cases 85, 86, 88, 89)."""

import asyncio

import pytest

from belay_core.ownership.heartbeat_loop import heartbeat_loop, owned
from belay_core.stores.bundle import LeaseTimes
from belay_core.stores.run_contract import FenceLost, NotFound, Updated
from belay_testing.cases import case
from belay_testing.clock import ManualClock
from tests.ownership.supervising import OWNER, RUN

FAILED = "run heartbeat write failed"
LAPSED = "run lease lapsed; interrupting owned work"


@pytest.fixture
def refused(bench):
    """Nobody gets a lease in doubt confirmed."""
    bench.store.on_reconfirm = lambda _at: bench.script.at_once(FenceLost())
    return bench


async def test_heartbeats_go_out_once_an_interval_with_the_reading_of_the_clock(bench):
    await bench.begin()
    await bench.until(60_000)
    assert bench.alive
    assert bench.store.beats == list(range(1_000, 60_001, 1_000))
    assert (bench.store.doubts, bench.lapses, bench.reconfirmed, bench.warnings) == ([], [], [], [])
    await bench.end()
    assert bench.lapses == []


# ---------------------------------------------------------------- case 85


@case(85)
async def test_work_outlives_failing_heartbeats_up_to_the_tolerance_and_not_beyond(refused):
    refused.store.on_heartbeat = lambda _at: refused.script.fails()
    await refused.begin()
    for moment in (5_000, 18_999):
        await refused.until(moment)
        assert refused.alive
    await refused.until(19_000)
    assert refused.stopped_at == 19_000
    assert refused.task.cancelled()
    assert refused.lapses == [19_000]
    assert refused.warnings == [FAILED, LAPSED]
    assert refused.logged(FAILED, "run_id") == refused.logged(LAPSED, "run_id") == RUN
    assert refused.logged(FAILED, "code") == "persistence_failed"
    assert refused.logged(LAPSED, "unconfirmed_ms") == 19_000
    await refused.no_leak()


@case(85)
@pytest.mark.parametrize("late", ["never", "fails", "succeeds"])
async def test_a_heartbeat_that_hangs_changes_nothing_about_the_end(refused, late):
    scripts = {
        "never": refused.script.never(),
        "fails": refused.script.fails(35_000),
        "succeeds": refused.script.after(35_000),
    }
    refused.store.on_heartbeat = lambda _at: scripts[late]
    await refused.begin()
    for moment in (5_000, 18_999):
        await refused.until(moment)
        assert refused.alive
    await refused.until(19_000)
    assert refused.stopped_at == 19_000
    assert refused.lapses == [19_000]
    assert refused.warnings == [LAPSED]
    assert refused.store.beats == [1_000]
    assert refused.store.cut == 1
    await refused.no_leak()
    await refused.until(40_000)
    assert refused.store.stored == 0


async def test_one_outage_is_warned_of_once_and_the_next_one_again(bench):
    down = (3_000, 4_000, 7_000)
    bench.store.on_heartbeat = lambda at: bench.script.fails() if at in down else bench.script.at_once()
    await bench.begin()
    await bench.until(10_000)
    assert bench.warnings == [FAILED, FAILED]
    assert bench.store.beats == list(range(1_000, 10_001, 1_000))
    await bench.end()


# ---------------------------------------------------------------- case 86


@case(86)
@pytest.mark.parametrize("outcome", [NotFound(), FenceLost()])
async def test_a_run_that_is_not_ours_ends_the_work_at_once_and_is_no_lapse(bench, outcome):
    bench.store.on_heartbeat = lambda _at: bench.script.at_once(outcome)
    await bench.begin()
    await bench.until(999)
    assert bench.alive
    await bench.until(1_000)
    assert bench.stopped_at == 1_000
    assert (bench.lapses, bench.warnings, bench.store.doubts) == ([], [], [])
    await bench.no_leak()


@case(86)
async def test_each_confirmed_heartbeat_moves_the_deadline_on(refused):
    refused.store.on_heartbeat = lambda at: refused.script.at_once() if at == 18_000 else refused.script.fails()
    await refused.begin()
    await refused.until(36_999)
    assert refused.alive
    await refused.until(37_000)
    assert refused.stopped_at == 37_000
    assert refused.lapses == [19_000]
    assert refused.warnings == [FAILED, FAILED, LAPSED]
    await refused.no_leak()


@case(86)
async def test_what_counts_is_when_a_heartbeat_was_sent(refused):
    refused.store.on_heartbeat = lambda at: refused.script.after(5_000) if at == 1_000 else refused.script.never()
    await refused.begin()
    await refused.until(19_999)
    assert refused.store.beats == [1_000, 7_000]
    assert refused.alive
    await refused.until(20_000)
    assert refused.stopped_at == 20_000
    assert refused.lapses == [19_000]
    await refused.no_leak()


# ---------------------------------------------------------------- case 88


@case(88)
async def test_a_lease_that_is_still_ours_is_confirmed_and_work_goes_on(bench):
    bench.store.on_heartbeat = lambda _at: bench.script.never()
    await bench.begin()
    await bench.until(18_999)
    assert bench.reconfirmed == []
    await bench.until(19_000)
    assert bench.reconfirmed == [19_000]
    assert bench.store.stored == 19_000
    await bench.until(37_999)
    assert bench.reconfirmed == [19_000]
    await bench.until(38_000)
    assert bench.reconfirmed == [19_000, 19_000]
    assert bench.alive
    assert (bench.lapses, bench.warnings) == ([], [])
    await bench.end()


@pytest.mark.parametrize("outcome", [FenceLost(), NotFound()])
async def test_a_lease_that_is_claimed_or_taken_lapses_without_a_receipt_of_confirmation(bench, outcome):
    bench.store.on_heartbeat = lambda _at: bench.script.never()
    bench.store.on_reconfirm = lambda _at: bench.script.at_once(outcome)
    await bench.begin()
    await bench.until(19_000)
    assert bench.stopped_at == 19_000
    assert (bench.reconfirmed, bench.lapses) == ([], [19_000])
    assert bench.logged(LAPSED, "cause") == type(outcome).__name__
    await bench.no_leak()


async def test_a_receipt_that_takes_long_does_not_extend_the_lease(bench):
    async def slow(unconfirmed: int) -> None:
        bench.reconfirmed.append(unconfirmed)
        await bench.clock.sleep(18.999)

    bench.options["on_reconfirm"] = slow
    bench.store.on_heartbeat = lambda _at: bench.script.never()
    await bench.begin()
    await bench.until(37_999)
    assert bench.reconfirmed == [19_000]
    await bench.until(38_000)
    assert bench.reconfirmed == [19_000, 19_000]
    assert bench.store.doubts == [19_000, 38_000]
    assert bench.alive
    await bench.end()


# ---------------------------------------------------------------- case 89


@case(89)
async def test_a_confirmation_that_does_not_come_is_waited_for_one_interval(bench):
    bench.store.on_heartbeat = lambda _at: bench.script.never()
    bench.store.on_reconfirm = lambda _at: bench.script.never()
    await bench.begin()
    await bench.until(19_999)
    assert bench.alive
    await bench.until(20_000)
    assert bench.stopped_at == 20_000
    assert bench.lapses == [19_000]
    assert bench.store.cut == 2
    assert bench.logged(LAPSED, "cause") == "TimeoutError"
    await bench.no_leak()


@case(89)
async def test_a_confirmation_that_fails_ends_the_work_at_once(bench):
    bench.store.on_heartbeat = lambda _at: bench.script.never()
    bench.store.on_reconfirm = lambda _at: bench.script.fails()
    await bench.begin()
    await bench.until(18_999)
    assert bench.alive
    await bench.until(19_000)
    assert bench.stopped_at == 19_000
    assert bench.lapses == [19_000]
    assert bench.warnings == [LAPSED]
    assert bench.logged(LAPSED, "cause") == "persistence_failed"
    await bench.no_leak()


@case(89)
@pytest.mark.parametrize(("late", "ours"), [(18_999, True), (19_000, False)])
async def test_a_confirmation_that_is_over_when_it_comes_is_none(bench, late, ours):
    """The clock moves on while the answer is on its way, as on a machine that was suspended."""

    async def suspended(_now_ms: int) -> Updated:
        bench.clock.advance(late)
        return Updated()

    bench.store.on_heartbeat = lambda _at: bench.script.never()
    bench.store.on_reconfirm = lambda at: suspended if at == 19_000 else bench.script.at_once()
    await bench.begin()
    await bench.until(19_000)
    assert bench.reconfirmed == ([19_000] if ours else [])
    assert bench.lapses == ([] if ours else [19_000])
    assert bench.alive is ours
    await bench.end()


# ---------------------------------------------------------------- receipts


@pytest.mark.parametrize("kind", ["raises", "hangs"])
async def test_a_receipt_of_confirmation_that_fails_or_hangs_lapses_the_lease(bench, kind):
    async def receipt(_unconfirmed: int) -> None:
        if kind == "raises":
            raise ValueError("no room")
        await asyncio.get_running_loop().create_future()

    bench.options["on_reconfirm"] = receipt
    bench.store.on_heartbeat = lambda _at: bench.script.never()
    await bench.begin()
    stop = 19_000 if kind == "raises" else 38_000
    await bench.until(stop - 1)
    assert bench.alive
    await bench.until(stop)
    assert bench.stopped_at == stop
    assert bench.lapses == [19_000]
    assert bench.warnings == [LAPSED]
    assert bench.logged(LAPSED, "cause") == ("ValueError" if kind == "raises" else "TimeoutError")
    assert bench.store.doubts == [19_000]
    await bench.no_leak()


async def test_a_receipt_has_what_is_left_of_the_renewed_tolerance(bench):
    async def receipt(_unconfirmed: int) -> None:
        await asyncio.get_running_loop().create_future()

    bench.options["on_reconfirm"] = receipt
    bench.store.on_heartbeat = lambda _at: bench.script.never()
    bench.store.on_reconfirm = lambda _at: bench.script.after(750)
    await bench.begin()
    await bench.until(37_999)
    assert bench.alive
    await bench.until(38_000)
    assert bench.stopped_at == 38_000
    await bench.no_leak()


@pytest.mark.parametrize("kind", ["raises", "hangs"])
async def test_a_receipt_of_lapse_that_fails_or_hangs_does_not_keep_the_work_going(refused, kind):
    async def receipt(unconfirmed: int) -> None:
        refused.lapses.append(unconfirmed)
        if kind == "raises":
            raise ValueError("no room")
        await asyncio.get_running_loop().create_future()

    refused.options["on_lapse"] = receipt
    refused.store.on_heartbeat = lambda _at: refused.script.never()
    await refused.begin()
    await refused.until(19_000 if kind == "raises" else 20_000)
    assert refused.stopped_at == (19_000 if kind == "raises" else 20_000)
    assert refused.lapses == [19_000]
    assert refused.task.cancelled()
    assert refused.warnings == [LAPSED, "the receipt of a lapsed lease failed"]
    await refused.no_leak()


async def test_a_receipt_of_lapse_is_finished_though_heartbeats_find_the_run_gone(refused):
    """A write that comes back meanwhile says that the run is another's: no reason to stop telling of the lapse."""
    finished = []

    async def receipt(unconfirmed: int) -> None:
        await refused.clock.sleep(0.9)
        finished.append(unconfirmed)

    refused.options["on_lapse"] = receipt
    refused.store.on_heartbeat = lambda _at: refused.script.after(18_500, FenceLost())
    await refused.begin()
    await refused.until(19_899)
    assert (finished, refused.alive) == ([], True)
    await refused.until(19_900)
    assert finished == [19_000]
    assert refused.stopped_at == 19_900
    await refused.no_leak()


async def test_receipts_are_optional(refused):
    refused.options.clear()
    refused.store.on_heartbeat = lambda _at: refused.script.never()
    await refused.begin()
    await refused.until(19_000)
    assert refused.stopped_at == 19_000
    assert refused.warnings == [LAPSED]
    await refused.no_leak()


# ---------------------------------------------------------------- once


@pytest.mark.parametrize("ours", [True, False])
async def test_pulse_and_deadline_that_are_due_together_doubt_once(bench, ours):
    """Heartbeats fail at once, so that at 19 000 the pulse is due at the very moment of the deadline."""
    bench.store.on_heartbeat = lambda _at: bench.script.fails()
    if not ours:
        bench.store.on_reconfirm = lambda _at: bench.script.at_once(FenceLost())
    await bench.begin()
    await bench.until(19_000)
    assert bench.store.doubts == [19_000]
    assert 19_000 not in bench.store.beats
    assert (bench.reconfirmed, bench.lapses) == (([19_000], []) if ours else ([], [19_000]))
    await bench.end()


@pytest.mark.parametrize("answer", ["hangs", "refused", "fails", "confirms"])
@pytest.mark.parametrize("jump", [19_000, 19_500, 30_000, 3_600_000])
async def test_a_clock_that_jumps_past_everything_doubts_once(bench, answer, jump):
    scripts = {
        "hangs": bench.script.never(),
        "refused": bench.script.at_once(FenceLost()),
        "fails": bench.script.fails(),
        "confirms": bench.script.at_once(),
    }
    bench.store.on_reconfirm = lambda _at: scripts[answer]
    await bench.begin()
    bench.clock.advance(jump)
    await bench.settle()
    if answer == "hangs":
        await bench.until(jump + 1_000)
    assert bench.store.doubts == [jump]
    assert bench.lapses == ([] if answer == "confirms" else [jump])
    assert bench.alive is (answer == "confirms")
    await bench.end()


# ---------------------------------------------------------------- cancellation


async def test_a_caller_who_is_cancelled_has_not_lost_its_lease(refused):
    refused.store.on_heartbeat = lambda _at: refused.script.never()
    await refused.begin()
    await refused.until(18_999)
    refused.task.cancel()
    refused.clock.advance(1)
    await refused.settle()
    assert (refused.lapses, refused.store.doubts, refused.warnings) == ([], [], [])
    await refused.no_leak()


@pytest.mark.parametrize("during", ["heartbeat", "reconfirm", "on_reconfirm"])
async def test_a_call_that_cancels_itself_ends_the_loop_and_is_no_lapse(bench, during):
    async def receipt(_unconfirmed: int) -> None:
        raise asyncio.CancelledError

    gives_up = bench.script.after(0, asyncio.CancelledError())
    bench.store.on_heartbeat = lambda _at: gives_up if during == "heartbeat" else bench.script.never()
    bench.store.on_reconfirm = lambda _at: gives_up if during == "reconfirm" else bench.script.at_once()
    bench.options["on_reconfirm"] = receipt
    await bench.begin()
    await bench.until(1_000 if during == "heartbeat" else 19_000)
    assert bench.task.cancelled()
    assert (bench.lapses, bench.warnings) == ([], [])
    await bench.no_leak()


@pytest.mark.parametrize("during", ["reconfirm", "on_reconfirm", "on_lapse"])
async def test_a_caller_who_is_cancelled_in_the_middle_of_a_doubt_is_no_timeout(bench, during):
    """The cancellation comes at the moment of the timeout."""

    async def hangs(_unconfirmed: int) -> None:
        await asyncio.get_running_loop().create_future()

    bench.store.on_heartbeat = lambda _at: bench.script.never()
    if during == "reconfirm":
        bench.store.on_reconfirm = lambda _at: bench.script.never()
    elif during == "on_lapse":
        bench.store.on_reconfirm = lambda _at: bench.script.fails()
    bench.options["on_reconfirm"] = hangs
    if during == "on_lapse":
        bench.options["on_lapse"] = hangs
    await bench.begin()
    await bench.until(37_999 if during == "on_reconfirm" else 19_999)
    assert bench.alive
    bench.task.cancel()
    bench.clock.advance(1)
    await bench.settle()
    assert bench.lapses == []
    assert bench.warnings == ([LAPSED] if during == "on_lapse" else [])
    await bench.no_leak()


async def test_a_loop_that_is_cancelled_ends_when_its_write_has(bench):
    ended = asyncio.Event()

    async def translate_errors(_now_ms: int) -> Updated:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await ended.wait()
            raise
        raise AssertionError

    bench.store.on_heartbeat = lambda _at: translate_errors
    await bench.begin()
    await bench.until(1_500)
    bench.task.cancel()
    await bench.settle()
    assert not bench.task.done()
    ended.set()
    await bench.no_leak()


async def test_a_loop_that_cancels_itself_does_not_wait_for_a_write_that_will_not_end(bench):
    ended = asyncio.Event()

    async def translate_errors(_now_ms: int) -> Updated:
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("too late to matter")

    bench.store.on_heartbeat = lambda _at: translate_errors
    bench.store.on_reconfirm = lambda _at: translate_errors
    await bench.begin()
    await bench.until(20_000)
    assert bench.stopped_at == 20_000
    assert bench.task.cancelled()
    ended.set()
    await bench.no_leak()


# ---------------------------------------------------------------- clocks


async def test_a_wall_clock_set_back_does_not_move_the_deadline(refused):
    refused.store.on_heartbeat = lambda _at: refused.script.never()
    await refused.begin()
    await refused.until(5_000)
    refused.clock.set(refused.clock.now() - 3_600_000)
    await refused.until(18_999)
    assert refused.alive
    await refused.until(19_000)
    assert refused.stopped_at == 19_000
    assert refused.lapses == [19_000]
    await refused.no_leak()


async def test_a_wall_clock_set_ahead_brings_the_deadline_forward(bench):
    """By that clock peers see the heartbeat age."""
    await bench.begin()
    await bench.until(5_000)
    bench.clock.set(bench.clock.now() + 18_500)
    await bench.until(5_499)
    assert bench.store.doubts == []
    await bench.until(6_000)
    assert bench.store.doubts == [6_000 + 18_500]
    assert bench.reconfirmed == [19_500]
    assert bench.alive
    await bench.end()


async def test_readings_are_whole_milliseconds_rounded_down(bench):
    bench.clock.advance(0.75)
    await bench.begin()
    await bench.until(3_000.75)
    assert bench.store.beats == [1_000, 2_000, 3_000]
    await bench.end()


async def test_lease_times_are_those_of_the_database(refused):
    refused.options["lease"] = LeaseTimes(interval_ms=100, stale_after_ms=2_000, skew_ms=500)
    refused.store.on_heartbeat = lambda at: refused.script.at_once() if at <= 300 else refused.script.fails()
    await refused.begin()
    await refused.until(1_699)
    assert refused.alive
    await refused.until(1_700)
    assert refused.lapses == [1_400]
    assert refused.store.beats[:5] == [100, 200, 300, 400, 500]
    await refused.no_leak()


async def test_a_clock_that_gives_up_ends_the_loop_with_its_error(bench):
    class Stopped(ManualClock):
        async def sleep(self, seconds: float) -> None:
            raise OSError("no more time")

    loop = heartbeat_loop(bench.store, RUN, OWNER, Stopped())
    with pytest.raises(OSError, match="no more time"):
        await loop
    await bench.settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


# ---------------------------------------------------------------- owned


async def test_the_answer_of_the_work_is_the_answer(bench):
    async def work() -> str:
        await bench.clock.sleep(2.5)
        return "done"

    await bench.begin(work())
    await bench.until(2_500)
    assert bench.task.result() == "done"
    assert bench.store.beats == [1_000, 2_000]
    await bench.no_leak()


async def test_the_error_of_the_work_is_the_error(bench):
    async def work() -> None:
        raise LookupError("nothing there")

    await bench.begin(work())
    with pytest.raises(LookupError):
        bench.task.result()
    await bench.no_leak()


async def test_what_work_answers_to_its_cancellation_is_dropped(bench):
    async def stubborn() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return "not cancelled"
        raise AssertionError

    bench.store.on_heartbeat = lambda _at: bench.script.at_once(FenceLost())
    await bench.begin(stubborn())
    await bench.until(1_000)
    assert bench.task.cancelled()
    await bench.no_leak()


async def test_a_loop_awaited_alone_shows_its_end_as_a_cancellation_nobody_asked_for(bench):
    bench.store.on_heartbeat = lambda _at: bench.script.at_once(NotFound())
    bench.task = asyncio.ensure_future(bench.loop())
    await bench.until(1_000)
    assert bench.task.cancelled()
    assert bench.task.cancelling() == 0
    await bench.no_leak()


async def test_owned_work_can_tell_that_nobody_cancelled_it(bench):
    seen = []

    async def caller() -> None:
        try:
            await owned(bench.work(), bench.loop())
        except asyncio.CancelledError:
            current = asyncio.current_task()
            assert current is not None
            seen.append(current.cancelling())

    bench.store.on_heartbeat = lambda _at: bench.script.at_once(NotFound())
    bench.task = asyncio.ensure_future(caller())
    await bench.until(1_000)
    assert seen == [0]
    await bench.no_leak()
