"""``--kill``: workers are killed while they work, and what that does to their runs is watched."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from belay_core.client import Client
from belay_core.clock import Clock
from belay_core.demo.crewing import Crew
from belay_core.demo.watching import Watch, step_under_way
from belay_core.records.workflow_run import RunSummary

AT_LEAST: Final = 3
"""Kills of every demo that has enough to do."""

_MOST = 12
_DOCUMENTS_A_KILL = 12
_PATIENCE = 10_000.0
_BOTH = 2


@dataclass(slots=True)
class Hit:
    """A run that was in the hands of a worker when it was killed."""

    run_id: str
    epoch: int
    step: str | None
    """The step it was in; None where it waited, or was between two."""
    at: float
    resumed_after: float | None = None
    """Milliseconds from the kill until another worker was seen to have taken the run over."""
    resumed_by: int | None = None
    """The process that did; None where it had let go of the run again before it was seen."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One worker, killed."""

    pid: int
    hits: list[Hit] = field(default_factory=list[Hit])

    @property
    def is_over(self) -> bool:
        """Whether all it had in hand has been taken over."""
        return all(hit.resumed_after is not None for hit in self.hits)


class Killer:
    """Kills workers one at a time: the next one once all of the last one's runs have been taken over.

    Documents come in portions: the next one once what a kill had hit is in other hands. So there is always work left
    for the next kill, however short it is.
    """

    def __init__(self, crew: Crew, client: Client, watch: Watch, clock: Clock, documents: int) -> None:
        self._crew = crew
        self._client = client
        self._watch = watch
        self._clock = clock
        self._documents = documents
        self._wanted = max(AT_LEAST, min(_MOST, documents // _DOCUMENTS_A_KILL))
        self._missed = 0
        self.kills: list[Kill] = []

    @property
    def allowed(self) -> int:
        """How many documents may have been started by now."""
        portions = min(sum(map(self._is_over, self.kills)) + self._missed, self._wanted) + 1
        return -(-self._documents * portions // (self._wanted + 1))

    def skip(self) -> None:
        """The portion was done before there was anybody to kill: the next one may come."""
        self._missed += 1

    async def look(self) -> Kill | None:
        """Kill a worker if it is time and one is at work; the kill, where it hit a run."""
        running = await self._watch.running()
        self._see_takeovers(running)
        if len(self.kills) >= self._wanted or not all(map(self._is_over, self.kills)):
            return None
        victim = await self._victim(running)
        return None if victim is None else await self._kill(victim)

    def see_all(self) -> None:
        """Take in what was seen of all runs: one may have been taken over and let go between two looks."""
        self._see_takeovers([run for run in self._watch.runs.values() if run is not None])

    def _is_over(self, kill: Kill) -> bool:
        """Whether all that it hit is in other hands, or that takes too long to wait for."""
        return kill.is_over or self._clock.elapsed() - kill.hits[0].at > _PATIENCE

    def _see_takeovers(self, runs: Sequence[RunSummary]) -> None:
        seen: dict[str, RunSummary] = {run.run_id: run for run in runs}
        for hit in (hit for kill in self.kills for hit in kill.hits if hit.resumed_after is None):
            run = seen.get(hit.run_id)
            if run is not None and run.epoch > hit.epoch:
                hit.resumed_after = self._clock.elapsed() - hit.at
                hit.resumed_by = None if run.owner is None else run.owner.pid

    async def _victim(self, running: Sequence[RunSummary]) -> int | None:
        """A worker in a step of the kind that is to be hit next, and with no run in hand that was hit before.

        Where hardly any run is left that was not, any worker that is in a step will do.
        """
        hit_before = {hit.run_id for kill in self.kills for hit in kill.hits}
        scarce = len(self._watch.moving - hit_before) <= 1
        # Every third kill hits the step that may not be repeated; the others hit steps that may.
        to_post = len(self.kills) % 3 == 1
        fits = {
            pid: (("post" in at_work.values()) is to_post) + hit_before.isdisjoint(at_work)
            for pid, at_work in (await self._at_work(running)).items()
        }
        best = max(fits, key=fits.__getitem__, default=None)
        return best if best is not None and (scarce or fits[best] == _BOTH) else None

    async def _at_work(self, running: Sequence[RunSummary]) -> dict[int, dict[str, str]]:
        """The steps that each worker is in, by run; those in none are left out."""
        found: dict[int, dict[str, str]] = {}
        for run in running:
            if run.owner is None or run.owner.pid not in self._crew.pids:
                continue
            step = step_under_way(await self._client.history(run.run_id))
            if step is not None:
                found.setdefault(run.owner.pid, {})[run.run_id] = step
        return found

    async def _kill(self, pid: int) -> Kill | None:
        at = self._clock.elapsed()
        await self._crew.kill(pid)
        kill = Kill(pid)
        # Only now is it certain what it had in hand: a dead process writes nothing any more.
        for run in await self._watch.running():
            if run.owner is not None and run.owner.pid == pid:
                step = step_under_way(await self._client.history(run.run_id))
                kill.hits.append(Hit(run.run_id, run.epoch, step, at))
        if not kill.hits:
            return None
        self.kills.append(kill)
        return kill
