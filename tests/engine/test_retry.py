"""The delay before a further attempt."""

from datetime import timedelta

import pytest

from belay_core import Context, Worker, step, workflow
from belay_core.engine.retry import LONGEST_DELAY, retry_delay
from belay_testing.drive import run_ready
from belay_testing.jitter import FixedJitter

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("failed", "expected"), [(0, 1_000), (1, 2_000), (4, 16_000), (12, 3_600_000), (10_000, 3_600_000)]
)
def test_a_delay_doubles_up_to_an_hour(failed, expected):
    assert retry_delay(SECOND, failed, FixedJitter(1.0)) == expected
    assert retry_delay(SECOND, failed, FixedJitter(0.0)) == expected // 2


def test_a_backoff_of_more_than_the_cap_stays_as_it_is():
    long = 3 * LONGEST_DELAY
    assert retry_delay(long, 0, FixedJitter(1.0)) == retry_delay(long, 5, FixedJitter(1.0)) == 3 * 3_600_000


async def test_steps_that_fail_together_are_not_tried_again_together(bench):
    @step(retries=1, idempotent=True)
    async def failing(number: int) -> int:
        raise ConnectionError("down")

    @workflow("outage")
    async def outage(ctx: Context) -> list[int]:
        return await ctx.map(failing, range(50))

    run = await bench.client.start(outage)
    async with Worker(bench.stores, [outage], telemetry=False, background=False) as worker:
        await run_ready(worker)
    due = {each.meta.partition('"retry_at":')[2].rstrip("}") for each in await bench.attempts(run)}
    assert len(due) > 25
