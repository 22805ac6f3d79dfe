"""How the runs of one call of the demo stand, seen from outside: only what is in the database counts."""

from collections.abc import Mapping, Sequence

from belay_core.client import Client
from belay_core.demo.workflow import NAME, POST, STEPS
from belay_core.records.commands import RunHistory
from belay_core.records.run import RunStatus, is_terminal_run_status
from belay_core.records.step_record import StepRecord, StepState
from belay_core.records.workflow_run import RunSummary

_PAGE = 1_000
_AT_REST = ("approval", "needs_review")


class Watch:
    """Looks at the runs that were started; what was seen last is kept."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: dict[str, RunSummary | None] = {}

    @property
    def runs(self) -> Mapping[str, RunSummary | None]:
        """Each run that was started, as it was last seen."""
        return self._seen

    @property
    def moving(self) -> set[str]:
        """Those that something still happens to."""
        return {run_id for run_id, run in self._seen.items() if run is None or not rests(run)}

    def add(self, run_id: str) -> None:
        """One more was started."""
        self._seen[run_id] = None

    async def look(self) -> None:
        """See how all of them stand. They are the newest of the database, so only their pages are read."""
        left, before = set(self._seen), None
        while left:
            page = await self._client.list(workflow=NAME, limit=_PAGE, before=before)
            self._seen.update({run.run_id: run for run in page if run.run_id in left})
            left.difference_update(run.run_id for run in page)
            if len(page) < _PAGE:
                return
            before = page[-1].run_id

    async def running(self) -> Sequence[RunSummary]:
        """Those that have an owner at this moment."""
        found = await self._client.list(workflow=NAME, status=RunStatus.RUNNING, limit=_PAGE)
        return [run for run in found if run.run_id in self._seen]

    def waiting_for_approval(self) -> list[RunSummary]:
        """Those that were last seen parked at a gate that nobody has answered."""
        return [run for run in self._seen.values() if run is not None and waits_for_approval(run)]


def rests(run: RunSummary) -> bool:
    """Whether nothing happens to the run any more unless a person does something."""
    if is_terminal_run_status(run.status):
        return True
    return run.status is RunStatus.SUSPENDED and run.ready_at_ms is None and _reason(run) in _AT_REST


def waits_for_approval(run: RunSummary) -> bool:
    """Whether the run is parked at a gate that nobody has answered."""
    return run.status is RunStatus.SUSPENDED and run.ready_at_ms is None and _reason(run) == "approval"


def step_under_way(history: RunHistory) -> str | None:
    """The step that a running run is in, by its records; None where it waits, or is between two.

    Only a step that is not idempotent leaves a record when it begins. For the others it is the first without a result.
    """
    latest = {each.step_key: each for each in history.attempts}
    if history.run.status is not RunStatus.RUNNING or any(_waits(each) for each in latest.values()):
        return None
    done = {each.step for each in latest.values() if each.state is StepState.SUCCEEDED}
    step = next((name for name in STEPS if name not in done), None)
    if step == "post" and (POST not in latest or latest[POST].state is not StepState.RUNNING):
        return None
    return step


def _waits(attempt: StepRecord) -> bool:
    return attempt.state in {StepState.WAITING, StepState.ORPHANED}


def _reason(run: RunSummary) -> str | None:
    return None if run.waiting is None else run.waiting.reason
