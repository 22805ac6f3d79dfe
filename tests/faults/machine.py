"""Store and reference asked the same, while requests and replies get lost and writes are given up (PostgreSQL)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from belay_core.clock import Clock
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.stores import Stores
from belay_core.stores.attempts import Conflict
from belay_drivers.postgres import open_postgres
from tests.faults.wire import CUTS, Cut, WireProxy
from tests.model.protocol import Rules
from tests.model.reference import Kept
from tests.model.test_against_stores import HELD, STEPS, WORKFLOWS, Machine, step

OWNED = (commands.Record, commands.Ask, commands.Park, commands.Settle)
"""Commands whose writes are counted under a lease."""
_PATIENCE = 0.1
"""Seconds for what nobody waits for any more."""


class LosingMachine(Machine):
    """One store behind a wire that can be cut; a cut is answered as if there had been none."""

    server: ClassVar[str]

    def __init__(self) -> None:
        self.wire = WireProxy(self.server)
        self.unclear: set[Lease] = set()
        super().__init__()

    @initialize()
    def empty(self) -> None:
        """A run is owned from the beginning."""
        super().empty()
        self.acquire(1, 1, WORKFLOWS, [], 0)

    @rule(
        process=st.integers(1, 2),
        limit=st.sampled_from([1, 5]),
        workflows=st.sampled_from([WORKFLOWS, WORKFLOWS[:1]]),
        dead=st.lists(st.integers(-4, -1), max_size=2),
        after=st.sampled_from([0, 30_001]),
    )
    def acquire(self, process: int, limit: int, workflows: tuple[str, ...], dead: list[int], after: int) -> None:
        """As without cuts, but that runs of one priority may stand in another order when the reply was lost."""
        if self.wire.armed_late:
            self.wire.disarm()
        self.time_passes(after)
        owner = OwnerId("host-a", process, f"nonce-{len(self.owners)}")
        named = tuple(self.owners[max(place, -len(self.owners))] for place in dead) if self.owners else ()
        command = commands.Acquire(owner, workflows, limit, named)
        got = self.do(self.stores.runs.acquire(command))
        expected = self.reference.acquire(command)
        assert sorted((each.run.run_id, each.lease.epoch) for each in got) == sorted(expected), command
        self.met.update(f"acquire {'takes over' if each.run.takeovers else 'gets'}" for each in got)
        self.owners.append(owner)
        self.leases += [each.lease for each in got]

    @rule(cut=st.sampled_from(CUTS))
    def the_next_write_is_cut(self, cut: Cut) -> None:
        self.wire.arm(cut)

    @rule()
    def nothing_is_cut(self) -> None:
        self.wire.disarm()

    @rule(cut=st.sampled_from(["request", "reply"]), limit=st.sampled_from([1, 5]), after=st.sampled_from([0, 30_001]))
    def acquire_cut(self, cut: Cut, limit: int, after: int) -> None:
        """An acquisition that arrives after it was sent again would take what is left then; that is not told here."""
        self.wire.arm(cut)
        self.acquire(1, limit, WORKFLOWS, [-1], after)
        self.wire.disarm()

    @rule(cut=st.sampled_from(CUTS), key=st.sampled_from(["a#1", "b#1"]), outcome=st.sampled_from("r12"))
    def record_cut(self, cut: Cut, key: str, outcome: str) -> None:
        """What decides is cut while an owner writes, which comes about too seldom by itself."""
        self.wire.arm(cut)
        self.record(HELD, None, {key: outcome})
        self.wire.disarm()

    def agree(self, command: Any) -> Any:
        """Ask both; where an earlier write was given up, the store writes once more before this one.

        A start whose reply is lost takes a run of this id and this moment for its own, so that they are told apart.
        """
        if isinstance(command, commands.Start) and self.wire.armed:
            self.time_passes(1)
        lease = getattr(command, "lease", None)
        if isinstance(command, OWNED) and lease in self.unclear:
            self.unclear.discard(lease)
            run = self.reference._held(lease)
            if isinstance(run, Kept):
                self.reference._write(run, "hold")
        cut = self.wire.armed
        answer = super().agree(command)
        if cut and isinstance(command, commands.Record) and isinstance(answer, Conflict):
            self._may_count_more(command.lease)
        return answer

    def _may_count_more(self, lease: Lease) -> None:
        """A record that was refused in steps may arrive after that, and has to be shut out; both are counted."""
        self.do(self.wire.quiet())
        run = self.reference.runs[lease.run_id]
        stored = self.do(self._read([lease.run_id]))[lease.run_id]["write_seq"]
        assert 0 <= stored - run.row.seq <= 2
        for _ in range(stored - run.row.seq):
            self.reference._write(run, "record")

    @rule(place=st.sampled_from([0, 0, -1]), arrives=st.booleans(), key=st.sampled_from(["c#1", "d#1"]))
    def give_up(self, place: int, arrives: bool, key: str) -> None:
        """Cancel a record while it is under way; whether it arrives, its owner does not learn."""
        lease = self.lease(place, None)
        if lease is None or not self.reference.owns(lease) or lease in self.unclear:
            return
        command = commands.Record(lease, (step(key, "1"), step(f"{key}{key}", "1")))
        self.do(self._given_up(command, arrives=arrives))
        self.met.add("record given up")
        if arrives:
            self.reference.record(command)
        self.unclear.add(lease)

    async def _given_up(self, command: commands.Record, *, arrives: bool) -> None:
        self.wire.hold(arrives=arrives)
        with patch.object(self.processes[0].runs._database, "patience", _PATIENCE):
            task = asyncio.ensure_future(self.stores.attempts.record(command))
            await asyncio.wait_for(self.wire.held.wait(), 10)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.wire.release()
        await asyncio.wait_for(self.wire.settled.wait(), 10)


def losing(url: str, examples: int, rules: Rules | None = None) -> set[str]:
    """Run the machine on this database; raises where store and reference differ. The answers that were met."""
    met: set[str] = set()

    class Compared(LosingMachine):
        server = url
        protocol = rules or Rules()
        current: ClassVar[LosingMachine]

        def __init__(self) -> None:
            Compared.current = self
            super().__init__()

    @asynccontextmanager
    async def opens(clock: Clock) -> AsyncGenerator[Stores]:
        async with Compared.current.wire.running() as through, open_postgres(through, clock=clock) as stores:
            yield stores

    Compared.opens, Compared.met = (opens,), met
    run_state_machine_as_test(
        Compared,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
    return met
