"""The course of a demo: turn by turn, documents are started, workers killed, gates answered, and all of it shown."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from belay_core.client import Client
from belay_core.client.explanation import shown_state
from belay_core.clock import Clock
from belay_core.demo.approving import Approver
from belay_core.demo.booking import Task
from belay_core.demo.crewing import Crew
from belay_core.demo.killing import Kill, Killer
from belay_core.demo.screen import Screen
from belay_core.demo.watching import Watch, rests, waits_for_approval
from belay_core.demo.workflow import accounts_payable
from belay_core.errors import StoreError
from belay_core.records.workflow_run import RunSummary

_TURN: Final = 0.025
_LOOK_EACH: Final = 1.0
"""Milliseconds between two looks at all runs, for each of them: looking is cheap, and not free."""
_LOOK_LEAST: Final = 100.0
_STARTED_A_TURN: Final = 25
_MOST_FAILURES: Final = 20


class Show:
    """All that happens between the first start and the last run at rest."""

    def __init__(
        self,
        client: Client,
        watch: Watch,
        screen: Screen,
        tasks: Sequence[Task],
        approver: Approver,
        crew: Crew | None,
        killer: Killer | None,
    ) -> None:
        self._client = client
        self._watch = watch
        self._screen = screen
        self._tasks = tasks
        self._approver = approver
        self._crew = crew
        self._killer = killer
        self._started: dict[str, Task] = {}
        self._told: dict[str, str] = {}
        self._resumptions_told = 0

    @property
    def started(self) -> Mapping[str, Task]:
        """The task of each run that was started."""
        return self._started

    async def go_on(self, clock: Clock, stop: asyncio.Event) -> None:
        """Come back when all runs rest and nobody is going to decide anything, or when told to stop."""
        failures, looked_at = 0, float("-inf")
        while not stop.is_set():
            try:
                await self._turn()
                if clock.elapsed() - looked_at >= max(_LOOK_LEAST, _LOOK_EACH * len(self._started)):
                    looked_at = clock.elapsed()
                    if await self._look():
                        return
                failures = 0
            except StoreError:
                # A busy database is no reason to give up; one that stays away is.
                failures += 1
                if failures == _MOST_FAILURES:
                    raise
            await clock.sleep(_TURN)

    async def _turn(self) -> None:
        allowed = len(self._tasks) if self._killer is None else self._killer.allowed
        for task in self._tasks[len(self._started) : min(allowed, len(self._started) + _STARTED_A_TURN)]:
            # By its place: a name may be longer than a key.
            key = f"demo/{task.batch}/{len(self._started)}"
            run = await self._client.start(accounts_payable, task, idempotency_key=key)
            self._started[run.run_id] = task
            self._watch.add(run.run_id)
        if self._killer is None:
            return
        kill = await self._killer.look()
        self._tell_resumptions(self._killer)
        if kill is not None:
            self._tell_kill(kill)

    async def _look(self) -> bool:
        """See how all of them stand, and act on it; whether the demo is over."""
        await self._watch.look()
        if self._crew is not None:
            self._crew.mend()
        if self._killer is not None:
            self._killer.see_all()
            self._tell_resumptions(self._killer)
        self._tell_progress()
        await self._approver.look(self._watch.waiting_for_approval())
        if self._watch.moving or any(self._may_move(run) for run in self._watch.runs.values()):
            return False
        if len(self._started) == len(self._tasks):
            return True
        if self._killer is not None and len(self._started) == self._killer.allowed:
            self._killer.skip()
        return False

    def _may_move(self, run: RunSummary | None) -> bool:
        return run is not None and waits_for_approval(run) and self._approver.wants(run.run_id)

    def _tell_kill(self, kill: Kill) -> None:
        what = ", ".join(
            f"{self._started[hit.run_id].name} ({f'in step {hit.step}' if hit.step else 'in no step'})"
            for hit in kill.hits
        )
        self._screen.say(f"killed worker {kill.pid} while it worked on {what}")

    def _tell_resumptions(self, killer: Killer) -> None:
        resumed = [hit for kill in killer.kills for hit in kill.hits if hit.resumed_after is not None]
        resumed.sort(key=lambda hit: hit.at + (hit.resumed_after or 0))
        for hit in resumed[self._resumptions_told :]:
            who = "another worker" if hit.resumed_by is None else f"worker {hit.resumed_by}"
            after = (hit.resumed_after or 0) / 1000
            self._screen.say(f"{who} has taken over {self._started[hit.run_id].name}, {after:.1f} s after the kill")
        self._resumptions_told = len(resumed)

    def _tell_progress(self) -> None:
        at_rest = 0
        for run_id, run in self._watch.runs.items():
            if run is None or not rests(run):
                continue
            at_rest += 1
            state = shown_state(run)
            if self._told.get(run_id) != state:
                self._told[run_id] = state
                self._screen.say(f"{self._started[run_id].name}: {_STATES.get(state, state)}")
        self._screen.progress(at_rest, len(self._tasks))


_STATES: Final = {"approval": "waits for approval", "needs_review": "needs an operator's review"}
