"""What is counted and traced of several operations in one transaction."""

import pytest

from belay_core.errors import DatabaseError, RunStoreError
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.telemetry import observed
from belay_testing.spans import recorded_counters, recorded_spans, tree

A = OwnerId("host-a", 7, "nonce-a")
PENDING = RunSnapshot(RunStatus.PENDING)
RUN = RunId("run")
OVER, RETRIES = "belay.run.throughput", "belay.db.write_retries"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("belay_drivers.sql.connection.database.FIRST_PAUSE", 0.001)


class Unhappy(Exception):
    pass


@pytest.fixture
async def watched(belay_each_store):
    async with belay_each_store as stores:
        with recorded_counters() as counted:
            yield observed(observed(stores)), counted


def busy():
    failure = DatabaseError("busy", "40001", transient=True)
    return RunStoreError("persistence_failed", "create", "database operation failed", {"cause": failure})


async def end(inside, run_id=RUN):
    await inside.runs.create(run_id, "{}")
    await inside.runs.claim_and_own(run_id, PENDING, A, 0)
    await inside.runs.transition_owned(run_id, A, RunStatus.COMPLETED)


async def test_a_run_that_is_over_counts_when_the_write_has_committed(watched):
    stores, counted = watched

    async def body(inside):
        await end(inside)
        assert counted().get(OVER, 0) == 0

    await stores.write(body)
    assert counted()[OVER] == 1


async def test_outside_a_write_it_counts_at_once(watched):
    stores, counted = watched
    await end(stores)
    assert counted()[OVER] == 1


async def test_a_run_whose_end_was_rolled_back_counts_nothing(watched):
    stores, counted = watched

    async def body(inside):
        await end(inside)
        raise Unhappy

    with pytest.raises(Unhappy):
        await stores.write(body)

    async def around(inside):
        with pytest.raises(Unhappy):
            await inside.write(body)

    await stores.write(around)
    assert counted().get(OVER, 0) == 0


async def test_a_write_that_was_repeated_counts_once_and_its_retries_as_such(watched):
    stores, counted = watched
    attempts = []

    async def body(inside):
        attempts.append(1)
        await end(inside)
        await inside.write(lambda deeper: end(deeper, RunId("other")))
        if len(attempts) < 4:
            raise busy()

    await stores.write(body)
    assert (counted()[OVER], counted()[RETRIES]) == (2, 3)


async def test_what_gives_up_has_one_retry_less_than_attempts(watched):
    stores, counted = watched

    async def body(_inside):
        raise busy()

    with pytest.raises(RunStoreError):
        await stores.write(body)
    assert counted()[RETRIES] == 9


async def test_a_write_is_a_span_above_what_is_done_in_it(belay_stores):
    async with belay_stores as stores:
        with recorded_spans() as spans:

            async def body(inside):
                await inside.runs.create(RUN, "{}")
                await inside.write(lambda deeper: deeper.runs.get(RUN))

            await observed(stores).write(body)

            async def failing(_inside):
                raise Unhappy

            with pytest.raises(Unhappy):
                await observed(stores).write(failing)
    assert tree(spans) == (
        "belay.writer.write [success]\n"
        "  belay.run_store.create [success]\n"
        "  belay.writer.write [success]\n"
        "    belay.run_store.get [success]\n"
        "belay.writer.write [failure] !"
    )
