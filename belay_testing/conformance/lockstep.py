"""One history of calls on two databases: every outcome has to be equal."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Final

import pytest_asyncio

from belay_core.records import commands
from belay_drivers.sqlite import open_sqlite
from belay_testing.clock import ManualClock
from belay_testing.conformance.auxiliary_history import AuxiliaryHistory
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.contract_history import ContractHistory
from belay_testing.conformance.engine_history import RUNS, EngineHistory
from belay_testing.conformance.twins import Twins
from belay_testing.harness import Harness
from belay_testing.ids import SequentialIds

CALLS: Final = 120
"""Calls a history."""
_COMPARE_EVERY: Final = 60
"""After how many calls everything stored is compared."""
_PROVING: Final = {"park Parked", "wake Woken", "append Appended", "delete Deleted"}
"""A history of all stores proves little where none of these was answered."""
_LEASES: Final = 5
"""A history of commands proves little where fewer runs were ever owned."""


class _LockstepChapter(Chapter):
    @pytest_asyncio.fixture
    async def twins(self, harness: Harness) -> AsyncGenerator[Twins]:
        """The driver's stores, and SQLite in memory."""
        clock = ManualClock()
        async with AsyncExitStack() as stack:
            stores = await stack.enter_async_context(harness.open())
            reference = await stack.enter_async_context(open_sqlite(":memory:", clock=clock, ids=SequentialIds()))
            yield Twins([stores, reference], [harness.clock, clock])


class LockstepChapter(_LockstepChapter):
    """The contract, call by call, as SQLite in memory keeps it."""

    async def test_a_history_of_the_contract_is_answered_as_on_sqlite(self, twins: Twins, lockstep_seed: int) -> None:
        history = ContractHistory(f"contract {lockstep_seed}", twins)
        await history.begin()
        for number in range(CALLS):
            await history.step()
            if number % _COMPARE_EVERY == 0:
                await history.compare()
        await history.compare()
        assert twins.answered >= {"claim_and_own Activated", "put Inserted"}, "the history proves little"


class AuxiliaryLockstepChapter(_LockstepChapter):
    """The contract, with waits, events, deletions and the feed, as SQLite in memory keeps it."""

    async def test_a_history_of_all_stores_is_answered_as_on_sqlite(self, twins: Twins, lockstep_seed: int) -> None:
        history = AuxiliaryHistory(f"auxiliary {lockstep_seed}", twins)
        await history.begin()
        for number in range(CALLS):
            await history.step()
            if number % _COMPARE_EVERY == 0:
                await history.compare()
        await history.compare()
        assert twins.answered & _PROVING, "the history proves little"


class EngineLockstepChapter(_LockstepChapter):
    """The engine's commands, one by one, as SQLite in memory keeps them."""

    async def test_a_history_of_commands_is_answered_as_on_sqlite(self, twins: Twins, lockstep_seed: int) -> None:
        history = EngineHistory(str(lockstep_seed), twins)
        for number in range(CALLS):
            await history.step()
            if number % _COMPARE_EVERY == 0:
                await compare(twins)
        await compare(twins)
        assert len(history.leases) >= _LEASES, "the history proves little"


async def compare(twins: Twins) -> None:
    """Everything that is stored of the engine's runs."""
    await twins.attempts("history", commands.History(tuple(RUNS)))
    for run_id in RUNS:
        await twins.journal("read", run_id)
    await twins.runs("list", commands.ListRuns())
    await twins.approvals("list", commands.ListApprovals())
    await twins.runs("running_owners", "host")
