"""Writes under one lease go one after another."""

import asyncio

import pytest

from belay_core.ids import RunId
from belay_core.records.owner import Lease, OwnerId
from belay_drivers.sql.stores.base import Sequences, Turn

LEASE = Lease(RunId("run-1"), OwnerId("host", 7, "nonce"), 1)


async def turns() -> None:
    """Let all that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


class Writers:
    """Writers of one lease; each waits for its turn and keeps it until it is let go."""

    def __init__(self) -> None:
        self.turn = Sequences().turn(LEASE)
        self.begun: list[str] = []
        self.go = {name: asyncio.Event() for name in "abc"}

    async def write(self, name: str) -> None:
        if not self.turn.take_at_once():
            await self.turn.wait()
        with self.turn:
            self.begun.append(name)
            await self.go[name].wait()

    async def begin(self, names: str = "abc") -> list["asyncio.Task[None]"]:
        tasks = [asyncio.create_task(self.write(name)) for name in names]
        await turns()
        return tasks


async def test_first_come_first_served():
    writers = Writers()
    tasks = await writers.begin()
    for done in range(1, 4):
        assert writers.begun == [*"abc"[:done]]
        writers.go["abc"[done - 1]].set()
        await turns()
    await asyncio.gather(*tasks)
    assert writers.turn.take_at_once()


async def test_who_was_cancelled_in_the_queue_is_passed_over():
    writers = Writers()
    a, b, c = await writers.begin()
    b.cancel()
    writers.go["a"].set()
    writers.go["c"].set()
    await asyncio.gather(a, c)
    assert writers.begun == ["a", "c"]
    assert (writers.turn.unclear, b.cancelled()) == (False, True)


async def test_who_is_cancelled_as_its_turn_comes_passes_it_on():
    writers = Writers()
    assert writers.turn.take_at_once()
    b, c = await writers.begin("bc")
    with writers.turn:
        pass
    b.cancel()
    writers.go["c"].set()
    await c
    assert (writers.begun, b.cancelled()) == (["c"], True)
    assert writers.turn.take_at_once()


async def test_who_fails_leaves_a_sequence_that_nobody_knows_and_passes_the_turn_on():
    turn = Turn("run", 4)
    assert turn.take_at_once()
    with pytest.raises(ValueError, match="broken"), turn:
        raise ValueError("broken")
    assert (turn.seq, turn.unclear) == (None, True)
    assert turn.take_at_once()


def test_each_lease_has_a_queue_of_its_own():
    sequences = Sequences()
    others = [
        Lease(RunId("run-2"), LEASE.owner, 1),
        Lease(LEASE.run_id, OwnerId("host", 7, "other"), 1),
        Lease(LEASE.run_id, LEASE.owner, 2),
    ]
    sequences.learn(LEASE, 3)
    assert sequences.turn(LEASE).seq == 3
    assert [sequences.turn(lease).seq for lease in others] == [None, None, None]
    mine = sequences.turn(LEASE)
    sequences.forget(LEASE)
    assert mine.seq is None
    assert sequences.turn(LEASE) is not mine
