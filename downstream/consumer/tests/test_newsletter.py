"""The newsletter, on the fixtures of belay."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from belay_core import Client, Worker, open_stores
from belay_testing.cancels.helper import Cancels
from belay_testing.clock import ManualClock
from belay_testing.crashes.helper import Crashes
from belay_testing.drive import decide, run_ready
from belay_testing.handles import WorkerFactory
from letters.newsletter import Letter, newsletter, outbox, write


@pytest.fixture(autouse=True)
def empty_outbox() -> Iterator[None]:
    outbox.clear()
    yield
    outbox.clear()


async def test_an_approved_letter_goes_to_every_reader(belay_worker: WorkerFactory) -> None:
    async with belay_worker([newsletter]) as worker:
        run = await worker.client.start(newsletter, "climbing")
        await run_ready(worker)
        assert outbox == []
        await decide(worker, run, "editor", by="ada")
        assert await run.result() == 2
    assert outbox == ["ada: All about climbing", "bob: All about climbing"]


async def test_an_editor_may_change_it(belay_worker: WorkerFactory) -> None:
    async with belay_worker([newsletter]) as worker:
        run = await worker.client.start(newsletter, "climbing")
        await run_ready(worker)
        await decide(worker, run, "editor", by="ada", edited=Letter("Nothing new", ["cyd"]))
        assert await run.result() == 1
    assert outbox == ["cyd: Nothing new"]


async def test_a_rejected_letter_stays(belay_worker: WorkerFactory) -> None:
    async with belay_worker([newsletter]) as worker:
        run = await worker.client.start(newsletter, "climbing")
        await run_ready(worker)
        await decide(worker, run, "editor", "rejected", reason="dull")
        assert await run.result() == 0


async def test_nobody_looked(belay_worker: WorkerFactory, belay_clock: ManualClock) -> None:
    async with belay_worker([newsletter]) as worker:
        run = await worker.client.start(newsletter, "climbing")
        await run_ready(worker)
        belay_clock.advance(timedelta(days=2))
        await run_ready(worker)
        assert await run.result() == 0


async def test_it_survives_crashes_everywhere(belay_crashes: Crashes) -> None:
    report = await belay_crashes(newsletter, "climbing", answers={"editor": "approved"}, effects=outbox)
    assert report.points == report.completed > 0
    assert report.needs_review == 0


async def test_it_survives_being_cancelled(belay_cancels: Cancels) -> None:
    report = await belay_cancels(newsletter, "climbing", effects=outbox, most=5)
    assert report.outcome == "2"


async def test_it_runs_in_a_file_that_is_found_by_its_url(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:///{tmp_path}/letters.db") as stores, Worker(stores, [newsletter]) as worker:
        run = await worker.client.start(newsletter, "climbing", idempotency_key="monday")
        while not (await worker.client.get(run.run_id)).waiting:
            await stores.clock.sleep(0.01)
        await Client(stores, approver="ada").approve(run)
        assert await run.result() == 2


async def test_a_step_is_a_function() -> None:
    assert (await write.fn("climbing")).readers == ["ada", "bob"]
