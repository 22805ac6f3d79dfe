"""Half of the writers work while the other half's flush is under way, where that is the faster way."""

import asyncio

from belay_core.stores.attempts import Recorded
from belay_drivers.sql.stores.group_commit import TRY_AGAIN_AFTER, PipelineTuner
from tests.drivers.test_group_commit import Flushes, owned, together

WRITERS = 40


class Lane:
    """Flushes of a database and a process whose times are given."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = PipelineTuner(lambda: self.now)

    def flush(self, taken: float, worked: float) -> None:
        """One flush; those who were told last write so long after it was sent."""
        self.pace.flush_began()
        self.now += min(worked, taken)
        self.pace.wrote()
        self.now += max(taken - worked, 0.0)
        self.pace.flush_ended()

    def until_whole(self, taken: float, worked: float, most: int) -> int | None:
        """After how many flushes all go together; None where they never do."""
        for number in range(1, most + 1):
            self.flush(taken, worked)
            if not self.pace.in_halves:
                return number
        return None


def test_halves_are_kept_where_writers_work_for_most_of_a_flush():
    lane = Lane()
    assert lane.pace.in_halves
    assert lane.until_whole(2.0, 1.2, most=5 * TRY_AGAIN_AFTER) is None


def test_where_commits_are_slow_and_writers_quick_all_go_together_and_halves_are_tried_again():
    lane = Lane()
    soon = lane.until_whole(20.0, 2.0, most=TRY_AGAIN_AFTER)
    assert soon is not None
    assert soon < TRY_AGAIN_AFTER / 8, "trying costs more than it may"
    for _ in range(TRY_AGAIN_AFTER):
        assert not lane.pace.in_halves
        lane.flush(20.0, 2.0)
    assert lane.pace.in_halves
    assert lane.until_whole(2.0, 2.0, most=TRY_AGAIN_AFTER) is None


def test_a_few_flushes_in_which_nobody_comes_back_change_nothing():
    lane = Lane()
    for _ in range(20):
        assert lane.until_whole(2.0, 1.8, most=20) is None
        assert lane.until_whole(4.0, 0.0, most=3) is None


def test_a_flush_that_takes_no_time_is_no_division_by_nothing():
    lane = Lane()
    lane.flush(0.0, 0.0)
    assert lane.pace.in_halves


async def test_writers_who_come_back_at_once_write_in_halves_beside_a_server_and_together_in_a_file(kit):
    leases = await owned(kit, WRITERS)
    flushes = Flushes(kit.stores)

    async def writer(lease):
        return [await kit.record(lease, kit.step(f"fetch#{number}")) for number in range(1, 5)]

    answers = await together(*(writer(lease) for lease in leases))
    assert answers == [[Recorded(None, None)] * 4] * WRITERS
    assert flushes.sizes[0] == WRITERS
    assert sum(flushes.sizes) == flushes.plain == 4 * WRITERS
    apart = flushes.group_commit._pace is not None
    assert max(flushes.sizes[1:]) == (WRITERS // 2 if apart else WRITERS)


async def test_few_writers_share_their_flushes(kit):
    leases = await owned(kit, 15)
    flushes = Flushes(kit.stores)
    for number in range(1, 4):
        await together(*(kit.record(lease, kit.step(f"fetch#{number}")) for lease in leases))
    assert flushes.sizes == [15, 15, 15]


async def test_a_writer_that_is_cancelled_after_the_flush_and_before_its_outcome_has_written(belay_postgres, make_kit):
    async with belay_postgres as opened:
        kit = make_kit(opened)
        leases = await owned(kit, WRITERS)
        group_commit = Flushes(opened).group_commit
        writing = [asyncio.ensure_future(kit.record(lease, kit.step())) for lease in leases]
        while not group_commit._ended:
            await asyncio.sleep(0)
        untold = [each.answered for each, *_ in group_commit._ended]
        assert not any(each.done() for each in untold)
        [*_, last] = writing
        last.cancel()
        answers = await together(*writing, return_exceptions=True)
        assert isinstance(answers.pop(), asyncio.CancelledError)
        assert answers == [Recorded(None, None)] * (WRITERS - 1)
        assert [*(await kit.attempts(leases[-1].run_id))] == ["fetch#1"]
        assert await kit.record(leases[-1], kit.step("next#1")) == Recorded(None, None)
