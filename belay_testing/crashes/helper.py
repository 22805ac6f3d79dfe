"""Kill a workflow's worker before and after every call of its stores (``belay_crashes``)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from belay_core.stores import Stores
from belay_core.workflows.registry import Registrable
from belay_drivers.sql.connection.engine_lookup import engines_of
from belay_testing.clock import ManualClock
from belay_testing.crashes.boundaries import Boundaries
from belay_testing.crashes.trial import Case, GateReply, Trial, TrialEnd, is_working, violations
from belay_testing.drive import vanish
from belay_testing.faults import Fault, FaultStores, kill_after, kill_before
from belay_testing.handles import StoresHandle

SHOWN = 10
"""An error lists at most so many broken points."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all points; ``executions`` counts those of each step in the run without a crash."""

    points: int
    """Number of points."""
    completed: int
    """Points after which the run ended as it does without a crash."""
    needs_review: int
    """Points after which the run is in review, because it is unknown whether a step took place."""
    executions: Mapping[str, int]
    repeated: Mapping[str, int]
    """Idempotent steps that executed more often after some point, and how often at most."""
    outcome: str | None
    """The result or the error of the run without a crash, as JSON text."""


class PointCounts:
    """Counts points, and raises ``AssertionError`` if one was not survived."""

    def __init__(self, what: str, undisturbed: TrialEnd) -> None:
        self._what = what
        self._undisturbed = undisturbed
        self._ends: list[TrialEnd] = []
        self._broken: list[tuple[str, list[str]]] = []

    def note(self, where: str, trial: Trial, end: TrialEnd, left: Iterable[str] = ()) -> None:
        """Add the result of one point; ``left`` is what was left behind."""
        self._ends.append(end)
        if held := [*violations(trial, end, self._undisturbed), *left]:
            self._broken.append((where, held))

    def report(self) -> Report:
        """The report, if every point was survived. Raises ``AssertionError`` that lists the failures by point."""
        if self._broken:
            points = f"{len(self._broken)} of {len(self._ends)} points"
            lines = [f"the workflow does not survive being {self._what}: {points}"]
            for where, held in self._broken[:SHOWN]:
                lines += [f"  {where}:", *(f"    {each}" for each in held)]
            raise AssertionError("\n".join(lines))
        usual = self._undisturbed.seen.times
        most: dict[str, int] = {}
        for end in self._ends:
            most |= {key: max(times, most.get(key, 0)) for key, times in end.seen.times.items()}
        reviewed = sum(end.state != self._undisturbed.state for end in self._ends)
        return Report(
            points=len(self._ends),
            completed=len(self._ends) - reviewed,
            needs_review=reviewed,
            executions=dict(usual),
            repeated={key: times for key, times in most.items() if times > usual[key]},
            outcome=self._undisturbed.outcome,
        )


@dataclass(frozen=True, slots=True)
class Kill:
    """Where the process is killed: around the ``at``-th call, or at the ``at``-th boundary of a statement."""

    at: int
    fault: Fault | None


class Crashes:
    """Runs a workflow once without a crash, and once for every point at which its worker's process may be killed."""

    def __init__(self, handle: StoresHandle, clock: ManualClock) -> None:
        self._handle = handle
        self._clock = clock

    async def __call__(
        self,
        workflow: Registrable[Any, Any],
        given: Any = None,
        *,
        answers: Mapping[str, GateReply] | None = None,
        effects: Sequence[Any] = (),
        statements: bool = False,
        over_stores: Callable[[Stores], Stores] = lambda stores: stores,
    ) -> Report:
        """Kill the worker at every point, and let another one finish each run.

        ``answers`` is the decision at each gate (by default ``approved``; ``nobody`` lets the gate lapse).
        ``effects`` is a list to which the workflow appends its effects; one that is in it more often than without a
        crash is a failure. With ``statements`` the points before and after each SQL statement and commit are tried as
        well. ``over_stores`` wraps the worker's stores.

        Raises ``AssertionError`` that names the point and the failure: a step that ran twice, a run that is stuck,
        another result, an effect that is missing or repeated.
        """
        case = Case(workflow, given, answers or {}, effects)
        async with self._handle as stores:
            calls, names, end = await self._undisturbed(stores, case, over_stores)
            account = PointCounts("killed", end)
            for kill in _kills(calls, len(names) if statements else 0):
                await self._point(stores, case, kill, account, over_stores)
        return account.report()

    async def _undisturbed(
        self, stores: Stores, case: Case, over_stores: Callable[[Stores], Stores]
    ) -> tuple[int, list[str], TrialEnd]:
        trial = Trial(stores, self._clock, case)
        await trial.begin()
        counting, boundaries = FaultStores(stores), Boundaries(of=is_working)
        async with trial.worker(over_stores(counting.stores)) as worker:
            with boundaries.observing(engines_of(stores)):
                await trial.worked(worker, lambda: False)
        return len(counting.calls), boundaries.names, await trial.end()

    async def _point(
        self, stores: Stores, case: Case, kill: Kill, account: PointCounts, over_stores: Callable[[Stores], Stores]
    ) -> None:
        trial = Trial(stores, self._clock, case)
        await trial.begin()
        faulty = FaultStores(stores, at=kill.at if kill.fault else 0, fault=kill.fault)
        boundaries = Boundaries(at=0 if kill.fault else kill.at, strike=faulty.end, of=is_working)
        async with trial.worker(over_stores(faulty.stores)) as worker:
            with ExitStack() as stack:
                if kill.fault is None:
                    stack.enter_context(boundaries.observing(engines_of(stores)))
                await trial.worked(worker, lambda: faulty.gone, lambda: vanish(worker))
        if faulty.gone:
            await trial.left()
            account.note(_place(kill, faulty, boundaries), trial, await trial.finished())


def _kills(calls: int, statements: int) -> Iterable[Kill]:
    for at in range(1, calls + 1):
        yield Kill(at, kill_before())
        yield Kill(at, kill_after())
    for at in range(1, statements + 1):
        yield Kill(at, None)


def _place(kill: Kill, faulty: FaultStores, boundaries: Boundaries) -> str:
    if kill.fault is None:
        return f"killed at statement boundary {kill.at} ({boundaries.names[kill.at - 1]})"
    when = "before" if kill.fault.before else "after"
    return f"killed {when} call {kill.at} of the store ({faulty.calls[kill.at - 1]})"
