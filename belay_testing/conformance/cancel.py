"""A cancel request is stored once and kept."""

import asyncio
from typing import Any

import pytest

from belay_core.errors import RunStoreError
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.stores.run_contract import AlreadyRequested, CancelRequested, NotFound, Terminal
from belay_testing.cases import case
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import (
    PENDING,
    A,
    R,
    complete,
)


class CancelChapter(Chapter):
    """``request_cancel`` and ``acknowledge_cancel``."""

    @case(43)
    async def test_the_first_request_is_kept_whatever_the_clock_says(self, kit: Kit, runs: Any) -> None:
        await runs.create(R, "{}")
        assert await runs.request_cancel(R, 500) == CancelRequested(500)
        assert await runs.request_cancel(R, 900) == AlreadyRequested(500)
        assert await runs.request_cancel("missing", 1) == NotFound()
        assert (await runs.get(R)).cancel_requested_at_ms == 500
        await runs.create("fresh", "{}")
        kit.clock.set(11_000.0)
        assert await runs.request_cancel("fresh", 1) == CancelRequested(1)
        with pytest.raises(RunStoreError, match="invalid_run"):
            await runs.request_cancel("fresh", -1)

    @case(44)
    async def test_of_three_requests_at_once_one_counts(self, runs: Any) -> None:
        await runs.create(R, "{}")
        answers = await asyncio.gather(*(runs.request_cancel(R, at) for at in (500, 900, 700)))
        [winner] = [answer.requested_at_ms for answer in answers if isinstance(answer, CancelRequested)]
        assert answers.count(AlreadyRequested(winner)) == 2
        assert (await runs.get(R)).cancel_requested_at_ms == winner

    async def test_a_run_that_is_over_says_so_even_with_a_request_on_it(self, runs: Any) -> None:
        await runs.create(R, "{}")
        await runs.request_cancel(R, 5)
        await complete(runs, R)
        assert await runs.request_cancel(R, 9) == Terminal(RunStatus.COMPLETED)

    async def test_an_acknowledgement_is_the_owners_and_the_first_one_is_kept(self, runs: Any) -> None:
        await runs.create(R, "{}")
        await runs.claim_and_own(R, PENDING, A, 0)
        assert await runs.acknowledge_cancel(R, A, 5) is False
        await runs.request_cancel(R, 4)
        assert await runs.acknowledge_cancel(R, OwnerId("host-a", 1, "x"), 5) is False
        assert await runs.acknowledge_cancel("missing", A, 5) is False
        assert await runs.acknowledge_cancel(R, A, 5) is True
        assert await runs.acknowledge_cancel(R, A, 9) is True
        await runs.transition_owned(R, A, "cancelled")
        assert await runs.acknowledge_cancel(R, A, 9) is False
