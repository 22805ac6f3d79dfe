"""When somebody looks again: an event or a time, and how often a worker looks where nobody tells it of more."""

import asyncio

import pytest

from belay_core import Client, Context, Worker, workflow
from belay_core.clock import Signal, SystemClock, event_or_time
from belay_core.engine.body_execution import EngineTask
from belay_core.stores import Notifier
from belay_testing.clock import ManualClock
from belay_testing.faults import FaultStores, meanwhile

LONG = 3_600.0
POLL = 0.8


@workflow("looked-for")
async def looked_for(_ctx: Context, number: int) -> int:
    return number


class EngineEvents:
    """A relay that is connected, and tells nobody."""

    connected = True

    def publish(self, run_id, *, ready):
        pass

    def listen(self):
        pass


@pytest.fixture(params=["system", "manual"])
def clock(request):
    return SystemClock() if request.param == "system" else ManualClock()


async def test_an_event_ends_the_wait_for_all_who_share_it(clock):
    event = Signal()
    waits = [asyncio.ensure_future(event_or_time(event, clock, LONG)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waits)
    event.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*waits)
        await event_or_time(event, clock, LONG)
    assert not event._waiting


async def test_time_ends_the_wait_and_leaves_the_event_as_it_was(clock):
    event = Signal()
    wait = asyncio.ensure_future(event_or_time(event, clock, 0.001))
    if isinstance(clock, ManualClock):
        while clock.next_due() is None:
            await asyncio.sleep(0)
        clock.advance(1)
    await asyncio.wait_for(wait, 5)
    assert (event.is_set(), len(event._waiting)) == (False, 0)


async def test_a_wait_that_is_cancelled_leaves_nobody_waiting(clock):
    event = Signal()
    wait = asyncio.ensure_future(event_or_time(event, clock, LONG))
    await asyncio.sleep(0)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert not event._waiting
    event.set()


async def test_time_passes_for_work_that_nobody_may_cancel_too():
    work = EngineTask(event_or_time(Signal(), SystemClock(), 0.001))
    done, _ = await asyncio.wait([work], timeout=5)
    assert done == {work}


@pytest.mark.parametrize("reported", [False, True])
async def test_a_worker_polls_more_often_for_a_while_after_it_acquired_a_run_unless_it_is_notified(
    belay_stores, belay_clock, reported
):
    async with belay_stores as stores:
        if reported:
            stores.notifier.attach_relay(EngineEvents())
        async with Worker(stores, [looked_for], poll=POLL) as worker:
            run = await worker.client.start(looked_for, 7)
            assert await asyncio.wait_for(run.result(), 5) == 7
            assert await due(belay_clock, 799 if reported else 199)
            belay_clock.advance(1_001)
            assert await due(belay_clock, 799)


@workflow("held-up")
async def held_up(_ctx: Context, number: int) -> int:
    if number:
        await HOLDS[-1].wait()
    return number


HOLDS: list[asyncio.Event] = []


async def test_a_worker_whose_runs_end_while_it_takes_more_goes_on_taking(belay_each_store):
    """It asked for as many as it had room for, and has room for more by the time they come; nobody tells it of them."""
    HOLDS.append(asyncio.Event())
    async with belay_each_store as stores:
        client = Client(stores)
        runs = [await client.start(held_up, number) for number in range(12)]

        async def others_end():
            HOLDS[-1].set()
            while worker.dispatcher.in_hand:
                await asyncio.sleep(0)

        fault = meanwhile("others end", others_end, before=False)
        store = FaultStores(stores, at=2, fault=fault, of=["acquire"])
        async with Worker(store.stores, [held_up], concurrency=4, telemetry=False) as worker:
            # The clock stands still: whoever waits for the next regular look waits for ever.
            async with asyncio.timeout(10):
                assert [await run.result() for run in runs] == list(range(12))


async def test_a_worker_with_more_in_hand_than_it_has_places_waits_until_one_is_free(belay_stores):
    """Who takes runs beside its own looks, as tests do, may take some beyond its places."""
    HOLDS.append(asyncio.Event())
    async with belay_stores as stores:
        client = Client(stores)
        runs = [await client.start(held_up, number) for number in range(1, 6)]
        async with Worker(stores, [held_up], concurrency=2, background=False) as worker:
            host, take, looks = worker.dispatcher, worker.dispatcher.take, []
            assert await asyncio.gather(take(), take()) == [2, 2]

            async def counted(**more):
                looks.append(host.in_hand)
                return await take(**more)

            host.take = counted
            looking = asyncio.create_task(host._take_until_leaving())
            for _ in range(200):
                await asyncio.sleep(0)
            HOLDS[-1].set()
            assert looks == [4]
            assert [await run.result() for run in runs] == [1, 2, 3, 4, 5]
            looking.cancel()


async def due(clock, after):
    """Whether the next one to come back does so within a millisecond after that, once all is quiet."""
    for _ in range(10_000):
        await asyncio.sleep(0)
        found = clock.next_due()
        if found is not None and after < found <= after + 1:
            return True
    return False


async def test_only_those_who_wait_for_it_hear_of_a_run():
    notifier = Notifier()
    with notifier.listening("one") as one, notifier.listening("two") as two, notifier.listening() as ready:
        notifier.deliver(["one"], ready=False)
        assert (one.is_set(), two.is_set(), ready.is_set()) == (True, False, False)
        notifier.deliver([], ready=True)
        assert (two.is_set(), ready.is_set()) == (False, True)
        notifier.deliver(None, ready=False)
        assert two.is_set()
    assert not notifier.hears_peers
