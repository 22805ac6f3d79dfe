"""``--kill``: kills workers while they work, and records which worker took each of their runs over."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from belay_core import Client, RunSummary, Stores
from belay_invoices.run_watch import RunWatch, current_step_of
from belay_invoices.workers import WorkerPool

_MIN_KILLS: Final = 3
_MAX_KILLS: Final = 12
_DOCUMENTS_PER_KILL: Final = 12
_TAKEOVER_TIMEOUT_MS: Final = 10_000


@dataclass(slots=True)
class Interruption:
    """A run that a worker owned when it was killed."""

    run_id: str
    epoch: int
    step: str | None
    """The step it was in; None where it waited, or was between two steps."""
    at_ms: float
    taken_over_after_ms: float | None = None
    """Time from the kill until another worker was seen to own the run, or to have owned it."""
    taken_over_by: int | None = None
    """The process of that worker; None where it had released the run again before it was seen."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One worker, killed."""

    pid: int
    interruptions: list[Interruption] = field(default_factory=list[Interruption])


class Killer:
    """Kills workers one at a time; the next one when all runs of the last one have been taken over.

    It also limits how many documents have been started: the next portion begins when the runs of a kill have been
    taken over. So there is always work left for the next kill, however few the documents are.
    """

    def __init__(self, workers: WorkerPool, client: Client, watch: RunWatch, stores: Stores, documents: int) -> None:
        self._workers = workers
        self._client = client
        self._watch = watch
        self._clock = stores.clock
        self._documents = documents
        self._wanted = max(_MIN_KILLS, min(_MAX_KILLS, documents // _DOCUMENTS_PER_KILL))
        self._skipped = 0
        self.kills: list[Kill] = []

    @property
    def allowed(self) -> int:
        """How many documents may have been started by now."""
        portions = min(sum(map(self._is_over, self.kills)) + self._skipped, self._wanted) + 1
        return -(-self._documents * portions // (self._wanted + 1))

    @property
    def interruptions(self) -> list[Interruption]:
        """Those of all kills."""
        return [each for kill in self.kills for each in kill.interruptions]

    def skip(self) -> None:
        """Allow the next portion: this one ended before a worker could be killed."""
        self._skipped += 1

    async def kill_one(self) -> Kill | None:
        """Kill a worker if it is time and one is in a step; the kill, where it interrupted a run."""
        running = await self._watch.running()
        self._record_takeovers(running)
        if len(self.kills) >= self._wanted or not all(map(self._is_over, self.kills)):
            return None
        pid = await self._choose(running)
        return None if pid is None else await self._kill(pid)

    def record_takeovers(self) -> None:
        """Compare with the last state of all runs: one may have been taken over and released since it was read."""
        self._record_takeovers([run for run in self._watch.runs.values() if run is not None])

    def _record_takeovers(self, runs: Sequence[RunSummary]) -> None:
        seen: dict[str, RunSummary] = {run.run_id: run for run in runs}
        for each in self.interruptions:
            run = seen.get(each.run_id)
            if each.taken_over_after_ms is None and run is not None and run.epoch > each.epoch:
                each.taken_over_after_ms = self._clock.elapsed() - each.at_ms
                each.taken_over_by = None if run.owner is None else run.owner.pid

    def _is_over(self, kill: Kill) -> bool:
        """Whether all that it interrupted was taken over, or takes too long to wait for."""
        if all(each.taken_over_after_ms is not None for each in kill.interruptions):
            return True
        return self._clock.elapsed() - kill.interruptions[0].at_ms > _TAKEOVER_TIMEOUT_MS

    async def _choose(self, running: Sequence[RunSummary]) -> int | None:
        """A worker in a step of the kind that is wanted next, with no run that was interrupted before.

        Where hardly any other run is left, any worker that is in a step will do.
        """
        interrupted = {each.run_id for each in self.interruptions}
        few_left = len(self._watch.moving - interrupted) <= 1
        # Every third kill hits the step that must not be repeated; the others hit steps that may be.
        wants_post = len(self.kills) % 3 == 1
        fits = {
            pid: (("post" in steps.values()) is wants_post, interrupted.isdisjoint(steps))
            for pid, steps in (await self._steps_of_workers(running)).items()
        }
        best = max(fits, key=lambda pid: sum(fits[pid]), default=None)
        return best if best is not None and (few_left or all(fits[best])) else None

    async def _steps_of_workers(self, running: Sequence[RunSummary]) -> dict[int, dict[str, str]]:
        """The steps that each worker is in, by run; workers in no step are left out."""
        found: dict[int, dict[str, str]] = {}
        for run in running:
            if run.owner is None or run.owner.pid not in self._workers.pids:
                continue
            step = current_step_of(await self._client.history(run.run_id))
            if step is not None:
                found.setdefault(run.owner.pid, {})[run.run_id] = step
        return found

    async def _kill(self, pid: int) -> Kill | None:
        at = self._clock.elapsed()
        await self._workers.kill(pid)
        kill = Kill(pid)
        # Only now is it certain which runs it owned: a process that has ended writes nothing any more.
        for run in await self._watch.running():
            if run.owner is not None and run.owner.pid == pid:
                step = current_step_of(await self._client.history(run.run_id))
                kill.interruptions.append(Interruption(run.run_id, run.epoch, step, at))
        if not kill.interruptions:
            return None
        self.kills.append(kill)
        return kill
