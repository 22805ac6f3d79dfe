"""A random history of calls of the contract and the auxiliary stores, compared with the change feed."""

from typing import Any, Final

from typing_extensions import override

from belay_core.ids import RunId
from belay_core.records.attempt import ABSENT
from belay_core.records.changes import START, MissingRun, RunChange, RunView, SnapshotEntry
from belay_core.records.run import TERMINAL
from belay_core.records.waiting import Wait
from belay_core.stores import Stores
from belay_core.stores.changes import ChangesPage
from belay_testing.conformance.contract_history import DATA, MOVES, RUNS, VALUES, ContractHistory
from belay_testing.conformance.parts import PENDING, A
from belay_testing.conformance.twins import Twins

_MOVES: Final = [
    *MOVES,
    *("begin_again", "begin_again", "begin_again", "park", "park", "park", "wake", "wake", "list_waits"),
    *("append", "append", "append", "append", "read_stream", "end", "end", "delete", "delete", "delete"),
]
_PAGE: Final = 3
"""Changes a page; a history has more runs than that."""


class AuxiliaryHistory(ContractHistory):
    """Draws calls of all stores but the engine's."""

    def __init__(self, seed: str, twins: Twins) -> None:
        super().__init__(seed, twins)
        self.moves = _MOVES
        self._calls = 0
        self._last: dict[RunId, int] = {}
        """During which call each run was changed last."""
        self._position = START

    @override
    async def step(self) -> None:
        await super().step()
        await self._note_changes()

    @override
    async def compare(self) -> None:
        await super().compare()
        await self._note_changes()
        for run_id in RUNS:
            await self.twins.waiting("waiting", run_id)
            await self.twins.journal("read", run_id, 0, 1_000)
            await self.twins.journal("ownership", run_id, 0, 1_000)
            await self.twins.changes("cancellation", run_id)
        await self.twins.waiting("waiting_runs")
        await self._compare_views()

    async def begin_again(self) -> None:
        """Make some run exist and be owned, so that later calls find one."""
        run_id = self.rng.choice(RUNS)
        await self.twins.runs("create", run_id, "{}")
        await self.twins.runs("claim_and_own", run_id, PENDING, A, self.twins.now)
        await self._read_run(run_id)

    async def park(self) -> None:
        """Declare what a run waits for."""
        run_id = await self._owned()
        reason = self.rng.choice(("timer", "event", "event", "human", ""))
        wake = self.rng.choice((None, None, self.twins.now, self.twins.now + 50_000))
        wait = Wait(reason, wake, self.rng.choice((None, "token", "ü")), self.rng.choice(VALUES))
        await self.twins.waiting("park", run_id, wait, self.owner(run_id))

    async def wake(self) -> None:
        """Clear a wait."""
        await self.twins.waiting("wake", self.run())

    async def list_waits(self) -> None:
        """List what waits."""
        reason = self.rng.choice((None, None, "event", "nothing"))
        due = self.rng.choice((None, None, self.twins.now))
        await self.twins.waiting("waiting_runs", reason, due, self.rng.choice((None, None, True, False)))

    async def append(self) -> None:
        """Add an event, sometimes one that the caller may not add."""
        run_id = await self._owned()
        kind = self.rng.choice(("mine", "mine", "mine", "yours", "woken", ""))
        await self.twins.journal("append", run_id, self.owner(run_id), kind, self.rng.choice((*DATA, ABSENT)))

    async def read_stream(self) -> None:
        """Read a part of a stream."""
        stream = self.rng.choice(("read", "ownership"))
        await self.twins.journal(stream, self.run(), self.rng.randrange(8), self.rng.choice((1, 3, 100)))

    async def end(self) -> None:
        """Bring a run to its end, so that there is something to delete."""
        run_id = await self._owned()
        status = self.rng.choice(("completed", "failed", "cancelled"))
        await self.twins.runs("transition_owned", run_id, self.owner(run_id), status)

    async def delete(self) -> None:
        """Delete a run."""
        over = [run_id for run_id, row in self.read.items() if row.status in TERMINAL]
        known = over and self.rng.random() < 0.7
        await self.twins.retention("delete", self.rng.choice(over if known else RUNS))

    async def _owned(self) -> RunId:
        """Mostly an owned run, just read."""
        owned = [run_id for run_id, row in self.read.items() if row.owner is not None]
        run_id = self.rng.choice(owned) if owned and self.rng.random() < 0.9 else self.run()
        await self._read_run(run_id)
        return run_id

    async def _note_changes(self) -> None:
        """What the last call changed, from the feed of the reference, which never lags."""
        self._calls += 1
        reference = self.twins.stores[-1]
        source = (await reference.changes.current()).source
        page = await reference.changes.changes_since(source, self._position, 1_000)
        assert isinstance(page, ChangesPage)
        self._position = page.next_position
        self._last |= {change.run_id: self._calls for change in page.changes}

    async def _compare_views(self) -> None:
        one, other = [await stores.changes.snapshot(RUNS) for stores in self.twins.stores]
        assert (one.runs, repr(one.runs)) == (other.runs, repr(other.runs)), "snapshot"
        reported: list[Any] = []
        for stores in self.twins.stores:
            changes = await _whole_feed(stores, one.runs)
            # The order of runs that one call changed is up to the driver.
            calls = [self._last[change.run_id] for change in changes]
            assert calls == sorted(calls), "changes_since"
            reported.append(sorted((each.run_id, each.entry, each.at_ms, each.kind, each.deleted) for each in changes))
        assert reported[0] == reported[1], "changes_since"


async def _whole_feed(stores: Stores, runs: tuple[SnapshotEntry, ...]) -> list[RunChange]:
    """All changes, once the feed shows the current state of each of these runs."""
    latest = {
        sight.run.run_id if isinstance(sight, RunView) else sight.run_id: sight.entry
        for sight in runs
        if not isinstance(sight, MissingRun)
    }
    source = (await stores.changes.current()).source
    while True:
        found: dict[RunId, RunChange] = {}
        position, more = START, True
        while more:
            page = await stores.changes.changes_since(source, position, _PAGE)
            assert isinstance(page, ChangesPage)
            for change in page.changes:
                # A run that changes while the feed is read appears again; its last appearance counts.
                earlier = found.pop(change.run_id, None)
                assert earlier is None or earlier.entry < change.entry, "changes_since returned a change twice"
                found[change.run_id] = change
            position, more = page.next_position, page.has_more
        if {change.run_id: change.entry for change in found.values()} == latest:
            return [*found.values()]
