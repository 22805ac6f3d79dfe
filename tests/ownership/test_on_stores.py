"""The heartbeat loop on real stores: what it writes, and what it finds when somebody else has been there (case 88)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from belay_core.clock import SystemClock
from belay_core.ids import RunId
from belay_core.ownership.heartbeat_loop import heartbeat_loop, owned
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores import Stores
from belay_core.stores.bundle import LeaseTimes
from belay_core.stores.run_contract import Activated, Claimed, HeartbeatOutcome
from belay_testing.cases import case
from belay_testing.clock import ManualClock

RUN = RunId("run-1")
A = OwnerId("host-a", 101, "owner-a")
B = OwnerId("host-b", 202, "owner-b")


class Held:
    """A run that A owns since the beginning, and later the loop that keeps it."""

    def __init__(self, stores: Stores, clock: ManualClock) -> None:
        self.stores = stores
        self.clock = clock
        self.start = int(clock.now())
        self.lapses: list[int] = []
        self.reconfirmed: list[int] = []
        self.silent = False

    async def heartbeat(self, run_id: RunId, owner: OwnerId, now_ms: int) -> HeartbeatOutcome:
        if self.silent:
            await asyncio.get_running_loop().create_future()
        return await self.stores.runs.heartbeat(run_id, owner, now_ms)

    async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: int) -> HeartbeatOutcome:
        return await self.stores.runs.reconfirm(run_id, owner, now_ms)

    async def transition_owned(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the loop moves no run on")

    async def own(self) -> None:
        await self.stores.runs.create(RUN, "{}")
        pending = RunSnapshot(RunStatus.PENDING)
        assert await self.stores.runs.claim_and_own(RUN, pending, A, self.start) == Activated()

    def begin(self, *, silent: bool = False) -> None:
        async def lapsed(unconfirmed: int) -> None:
            self.lapses.append(unconfirmed)

        async def confirmed(unconfirmed: int) -> None:
            self.reconfirmed.append(unconfirmed)

        self.silent = silent
        loop = heartbeat_loop(self, RUN, A, self.clock, on_lapse=lapsed, on_reconfirm=confirmed)
        self.work = asyncio.get_running_loop().create_future()
        self.task = asyncio.ensure_future(owned(self._wait(), loop))

    async def _wait(self) -> None:
        await self.work

    async def stamp(self) -> int | None:
        found = (await self.stores.runs.get(RUN)).heartbeat_at_ms
        return None if found is None else found - self.start

    async def pass_time(self, ms: int, until: Callable[[], bool]) -> None:
        """Move on second by second, and wait in the end for what real databases take a moment for."""
        await self.quiet()
        for _ in range(ms // 1_000):
            self.clock.advance(1_000)
            await self.quiet()
        for _ in range(1_000):
            if until():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it never came to that")

    async def quiet(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def held(belay_each_store, belay_clock):
    async with belay_each_store as stores:
        held = Held(stores, belay_clock)
        await held.own()
        yield held
        await held.end()


async def test_heartbeats_are_stored_with_the_moment_they_were_sent(held):
    held.begin()
    for second in (1, 2, 3):
        await held.pass_time(1_000, lambda: True)
        for _ in range(1_000):
            if await held.stamp() == second * 1_000:
                break
            await asyncio.sleep(0.005)
        assert await held.stamp() == second * 1_000
    assert not held.task.done()


@case(88)
async def test_a_lease_nobody_touched_is_confirmed(held):
    held.begin(silent=True)
    await held.pass_time(19_000, lambda: bool(held.reconfirmed))
    assert held.reconfirmed == [19_000]
    assert await held.stamp() == 19_000
    await held.pass_time(19_000, lambda: len(held.reconfirmed) == 2)
    assert held.reconfirmed == [19_000, 19_000]
    assert await held.stamp() == 38_000
    assert (held.lapses, held.task.done()) == ([], False)


@case(88)
@pytest.mark.parametrize("taken", [False, True])
async def test_a_lease_somebody_has_claimed_or_taken_lapses(held, taken):
    """The loop begins fifteen seconds after the last stored heartbeat, so that a peer may act before its deadline."""
    held.clock.advance(15_000)
    held.begin(silent=True)
    await held.pass_time(16_000, lambda: True)
    read = (await held.stores.runs.get(RUN)).snapshot
    now = held.start + 31_000
    expired = LivenessEvidence(A, now, "lease-expired")
    if taken:
        assert await held.stores.runs.claim_and_own(RUN, read, B, now, expired) == Activated()
    else:
        assert await held.stores.runs.steal(RUN, read, B, now, expired) == Claimed(now)
    assert not held.task.done()
    await held.pass_time(3_000, held.task.done)
    assert held.task.cancelled()
    assert (held.lapses, held.reconfirmed) == ([19_000], [])
    assert await held.stamp() == (31_000 if taken else 0)


async def test_a_heartbeat_that_finds_the_run_taken_ends_the_work(held):
    held.clock.advance(30_001)
    held.begin()
    read = (await held.stores.runs.get(RUN)).snapshot
    now = held.start + 30_001
    expired = LivenessEvidence(A, now, "lease-expired")
    assert await held.stores.runs.claim_and_own(RUN, read, B, now, expired) == Activated()
    await held.pass_time(1_000, held.task.done)
    assert held.task.cancelled()
    assert (held.lapses, held.reconfirmed) == ([], [])


async def test_it_keeps_time_by_the_machines_own_clocks(belay_sqlite_file):
    """Real time: the lease lapses once its tolerance is over, and not before."""
    clock, lapses = SystemClock(), []
    lease = LeaseTimes(interval_ms=20, stale_after_ms=500, skew_ms=180)

    async def lapsed(unconfirmed: int) -> None:
        lapses.append(unconfirmed)

    class Silent(Held):
        async def reconfirm(self, run_id: RunId, owner: OwnerId, now_ms: int) -> HeartbeatOutcome:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    async with belay_sqlite_file as stores:
        held = Silent(stores, ManualClock())
        held.silent = True
        begun = clock.elapsed()
        with pytest.raises(asyncio.CancelledError):
            await heartbeat_loop(held, RUN, A, clock, on_lapse=lapsed, lease=lease)
    [unconfirmed] = lapses
    assert lease.tolerance_ms <= unconfirmed <= clock.elapsed() - begun
    assert clock.elapsed() - begun >= lease.tolerance_ms + lease.interval_ms
