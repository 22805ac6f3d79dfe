"""Jobs, over two kinds of stores that are found by their URLs."""

import asyncio
from pathlib import Path

import pytest

from belay_core import DriverNotFound, Worker, open_stores
from belay_core.errors import StoreAbsent
from belay_core.records.owner import OwnerId
from belay_testing.clock import ManualClock
from letters.jobs import once
from letters.newsletter import newsletter

ADA, BOB = OwnerId("host-a", 1, "ada"), OwnerId("host-b", 2, "bob")


@pytest.fixture(params=["sqlite:///{}/jobs.db", "jsonl:///{}/jobs.jsonl"], ids=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    template: str = request.param
    return template.format(tmp_path)


async def test_a_job_is_done_once(url: str, belay_clock: ManualClock) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("paid")

    async with open_stores(url, clock=belay_clock) as stores:
        assert await once(stores, "payday", ADA, work) == "done"
    async with open_stores(url, clock=belay_clock) as stores:
        assert await once(stores, "payday", BOB, work) == "over"
    assert done == ["paid"]


async def test_of_rivals_with_openings_of_their_own_one_does_it(url: str, belay_clock: ManualClock) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("paid")

    async with open_stores(url, clock=belay_clock) as one, open_stores(url, clock=belay_clock) as other:
        answers = await asyncio.gather(once(one, "payday", ADA, work), once(other, "payday", BOB, work))
    assert done == ["paid"]
    assert sorted(answers) in (["busy", "done"], ["done", "over"])


async def test_a_job_whose_worker_is_gone_is_done_by_another_who_alone_is_heard(
    url: str, belay_clock: ManualClock
) -> None:
    async def work() -> None:
        """What ADA is stuck in: meanwhile BOB comes, twice."""
        async with open_stores(url, clock=belay_clock) as stores:
            assert await once(stores, "payday", BOB, nothing) == "busy"
            belay_clock.advance(30_001)
            assert await once(stores, "payday", BOB, nothing) == "done"

    async def nothing() -> None:
        pass

    async with open_stores(url, clock=belay_clock) as stores:
        assert await once(stores, "payday", ADA, work) == "lost"


async def test_a_driver_without_an_engine_takes_no_worker(tmp_path: Path) -> None:
    async with open_stores(f"jsonl:///{tmp_path}/jobs.jsonl") as stores:
        with pytest.raises(StoreAbsent):
            Worker(stores, [newsletter])


def test_a_url_that_nobody_opens_names_those_who_could() -> None:
    with pytest.raises(DriverNotFound, match="jsonl, postgresql, sqlite"):
        open_stores("papyrus:///nile")
