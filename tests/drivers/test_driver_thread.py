"""One thread beside the loop: in order, each answered, whoever is cancelled or gone; it ends when it is told to."""

import asyncio
import gc
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest

from belay_drivers.sql.connection.connection_runner import DriverThread

NAME = "one-thread-of-a-test"
WHO = ContextVar("WHO", default="nobody")


def alive():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


async def nothing():
    """Let a turn of the loop pass."""
    await asyncio.sleep(0)


class Gate:
    """Work that begins, and goes on when it is let."""

    def __init__(self):
        self.begun, self.go_on, self.done = threading.Event(), threading.Event(), False

    def work(self):
        self.begun.set()
        assert self.go_on.wait(10)
        self.done = True
        return "done"

    async def under_way(self):
        while not self.begun.is_set():
            await nothing()


@pytest.fixture
async def thread():
    made = DriverThread(NAME)
    yield made
    if not made._ended:
        await made.end(lambda: None)
    assert alive() == []


async def test_what_is_asked_for_is_done_in_order_in_one_thread_and_answered(thread):
    assert alive() == [], "it begins with the first"
    done = []

    def work(number):
        done.append(number)
        return number, threading.get_ident()

    answers = await asyncio.gather(*(thread.do(lambda number=number: work(number)) for number in range(100)))
    assert done == [*range(100)] == [number for number, _ in answers]
    assert {ident for _, ident in answers} == {each.ident for each in alive()}


@pytest.mark.parametrize("error", [KeyError, SystemError, asyncio.CancelledError, GeneratorExit])
async def test_what_work_raises_is_raised_to_the_caller_and_the_thread_goes_on(thread, error):
    def broken():
        raise error

    with pytest.raises(error):
        await thread.do(broken)
    assert await thread.do(lambda: 1) == 1


async def test_an_iterator_that_ends_in_the_thread_is_reported_as_an_error(thread):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(thread.do(lambda: next(iter(()))), 5)


async def test_work_is_done_in_the_context_of_the_caller(thread):
    WHO.set("me")
    assert await thread.do(WHO.get) == "me"


async def test_a_caller_who_is_cancelled_before_it_begins_withdraws_it(thread):
    gate, done = Gate(), []
    first = asyncio.create_task(thread.do(gate.work))
    await gate.under_way()
    second = asyncio.create_task(thread.do(lambda: done.append(1)))
    await nothing()
    second.cancel()
    await asyncio.wait([second])
    gate.go_on.set()
    assert (await first, await thread.do(lambda: 1), done) == ("done", 1, [])


async def test_what_has_begun_is_done_though_its_caller_is_cancelled(thread):
    gate = Gate()
    first = asyncio.create_task(thread.do(gate.work))
    await gate.under_way()
    first.cancel()
    await asyncio.wait([first])
    gate.go_on.set()
    assert (await thread.do(lambda: 1), gate.done, first.cancelled()) == (1, True, True)


async def test_the_end_comes_after_what_was_asked_for_and_nothing_after_it(thread):
    gate, done = Gate(), []
    first = asyncio.create_task(thread.do(gate.work))
    await gate.under_way()
    ending = asyncio.create_task(thread.end(lambda: done.append(gate.done)))
    await nothing()
    with pytest.raises(RuntimeError, match="ended"):
        await thread.do(lambda: 1)
    gate.go_on.set()
    await ending
    assert (await first, done, alive()) == ("done", [True], [])


async def test_the_end_comes_though_the_caller_that_waits_for_it_is_cancelled(thread):
    gate, done = Gate(), []
    first = asyncio.create_task(thread.do(gate.work))
    await gate.under_way()
    ending = asyncio.create_task(thread.end(lambda: done.append(gate.done)))
    await nothing()
    ending.cancel()
    await asyncio.wait([ending])
    [running] = alive()
    gate.go_on.set()
    assert await first == "done"
    running.join(10)
    assert (ending.cancelled(), done, alive()) == (True, [True], [])


async def test_it_ends_when_nobody_is_left_to_ask():
    made = DriverThread(NAME)
    await made.do(lambda: None)
    [running] = alive()
    del made
    gc.collect()
    running.join(10)
    assert not running.is_alive()


def test_it_outlives_a_loop_that_was_closed_meanwhile():
    made, gate = DriverThread(NAME), Gate()

    async def leave():
        asyncio.create_task(made.do(gate.work)).add_done_callback(lambda _: None)
        await gate.under_way()

    asyncio.run(leave())
    gate.go_on.set()

    async def come_back():
        assert await made.do(lambda: gate.done)
        await made.end(lambda: None)

    asyncio.run(come_back())
    assert alive() == []


PROGRAM = """
import asyncio, sys
from belay_core.records.commands import Start
from belay_core.ids import RunId
from belay_drivers.sqlite import open_sqlite


async def main():
    stores = await open_sqlite(sys.argv[1]).__aenter__()
    await stores.runs.start(Start(RunId("run"), "flow", "1", "null"))


loop = asyncio.new_event_loop()
loop.run_until_complete(main())
print("left")
"""


def test_a_program_that_never_closes_its_stores_comes_to_its_end(tmp_path):
    given = [sys.executable, "-c", PROGRAM, str(tmp_path / "belay.db")]
    done = subprocess.run(given, check=False, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
