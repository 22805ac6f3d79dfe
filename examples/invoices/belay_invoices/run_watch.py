"""What state the runs of one demo are in, read from the database alone."""

from typing import Final

from belay_core import Client, RunHistory, RunStatus, RunSummary, StepState
from belay_invoices.workflow import NAME, POST, STEPS

_PAGE: Final = 1_000
_ENDED: Final = {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}


class RunWatch:
    """The runs that were started, each as it was last read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.runs: dict[str, RunSummary | None] = {}
        """By run id; None until it was read once."""

    @property
    def moving(self) -> set[str]:
        """Those that go on without a person."""
        return {run_id for run_id, run in self.runs.items() if run is None or not is_at_rest(run)}

    @property
    def at_gate(self) -> list[RunSummary]:
        """Those that wait for a decision."""
        return [run for run in self.runs.values() if run is not None and waits_for_approval(run)]

    async def refresh(self) -> None:
        """Read all of them. They are the newest runs of the database, so only the first pages are read."""
        left, before = set(self.runs), None
        while left:
            page = await self._client.list(workflow=NAME, limit=_PAGE, before=before)
            self.runs.update({run.run_id: run for run in page if run.run_id in left})
            left.difference_update(run.run_id for run in page)
            if len(page) < _PAGE:
                return
            before = page[-1].run_id

    async def running(self) -> list[RunSummary]:
        """Those that a worker owns now."""
        found = await self._client.list(workflow=NAME, status=RunStatus.RUNNING, limit=_PAGE)
        return [run for run in found if run.run_id in self.runs]


def state_of(run: RunSummary) -> str:
    """The status of a run, or what it waits for."""
    return run.waiting.reason if run.status is RunStatus.SUSPENDED and run.waiting else run.status.value


def is_at_rest(run: RunSummary) -> bool:
    """Whether the run has ended, or needs a person to go on."""
    return run.status in _ENDED or (run.ready_at_ms is None and state_of(run) in {"approval", "needs_review"})


def waits_for_approval(run: RunSummary) -> bool:
    """Whether the run waits at a gate that is not decided."""
    return run.ready_at_ms is None and state_of(run) == "approval"


def current_step_of(history: RunHistory) -> str | None:
    """The step that a running run is in, by its records; None where it waits, or is between two steps.

    Only a step that is not idempotent leaves a record when it begins. Otherwise it is the first one without a result.
    """
    latest = {each.step_key: each for each in history.attempts}
    waiting = any(each.state in {StepState.WAITING, StepState.ORPHANED} for each in latest.values())
    if history.run.status is not RunStatus.RUNNING or waiting:
        return None
    done = {each.step for each in latest.values() if each.state is StepState.SUCCEEDED}
    step = next((name for name in STEPS if name not in done), None)
    if step == "post" and (POST not in latest or latest[POST].state is not StepState.RUNNING):
        return None
    return step
