"""The clock that follows the database's: right within half a round trip, and wary after a jump."""

import pytest

from belay_drivers.postgres.clock import FollowingClock
from belay_testing.clock import ManualClock


@pytest.fixture
def base():
    return ManualClock(1_000_000.0)


@pytest.fixture
def clock(base):
    return FollowingClock(base, stale_after_ms=30_000)


def sample(base, clock, database_ms, round_trip=2.0):
    asked = base.elapsed()
    base.advance(round_trip)
    clock.learn(asked, base.elapsed(), database_ms - round_trip / 2)


def test_before_the_first_sample_it_is_the_machines_own(base, clock):
    assert clock.now() == 1_000_000.0
    base.advance(5)
    assert (clock.now(), clock.elapsed()) == (1_000_005.0, 5.0)


def test_it_stands_where_the_database_stood_in_the_middle_of_the_question(base, clock):
    sample(base, clock, 77_000.0)
    assert clock.now() == 77_000.0
    base.advance(250)
    assert clock.now() == 77_250.0


def test_a_step_of_the_machines_wall_clock_does_not_move_it(base, clock):
    sample(base, clock, 77_000.0)
    base.set(5.0)
    assert clock.now() == 77_000.0


def test_the_quickest_answer_of_the_last_minute_counts(base, clock):
    sample(base, clock, 77_000.0, round_trip=1.0)
    sample(base, clock, 77_400.0, round_trip=900.0)
    assert clock.now() == 77_900.0
    base.advance(60_001)
    sample(base, clock, 200_000.0, round_trip=500.0)
    assert clock.now() == 200_000.0


def test_an_answer_that_took_over_a_second_says_nothing(base, clock):
    sample(base, clock, 77_000.0)
    sample(base, clock, 999_999.0, round_trip=1_001.0)
    assert clock.now() == 78_001.0


def test_it_is_settled_from_the_first_sample_on(base, clock):
    sample(base, clock, 77_000_000.0)
    assert clock.settled()


@pytest.mark.parametrize("jump", [5_200.0, -5_200.0, 10.0**9])
def test_after_a_jump_it_follows_but_calls_nobody_silent_for_one_stale_period(base, clock, jump):
    sample(base, clock, 77_000.0, round_trip=1.0)
    sample(base, clock, 77_000.0 + jump, round_trip=90.0)
    assert clock.now() == 77_000.0 + jump
    assert not clock.settled()
    base.advance(29_999)
    assert not clock.settled()
    base.advance(1)
    assert clock.settled()


def test_a_small_correction_is_no_jump(base, clock):
    sample(base, clock, 77_000.0, round_trip=90.0)
    sample(base, clock, 81_900.0, round_trip=1.0)
    assert clock.settled()


def test_it_wants_a_new_sample_after_half_a_minute(base, clock):
    assert clock.is_due()
    sample(base, clock, 77_000.0)
    assert not clock.is_due()
    base.advance(30_001)
    assert clock.is_due()


def test_a_first_answer_that_took_long_says_more_than_the_machines_own_clock(base, clock):
    sample(base, clock, 77_000.0, round_trip=3_000.0)
    assert clock.now() == 77_000.0
    sample(base, clock, 78_500.0, round_trip=2.0)
    assert clock.now() == 78_500.0
