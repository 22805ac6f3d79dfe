"""What is recorded of a run, indexed for a play, and the order of what will be recorded next."""

from collections import defaultdict
from collections.abc import Iterable

from belay_core.records.commands import RunHistory
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord


class RecordedSteps:
    """The attempts of a run by step key, and its approvals."""

    def __init__(self, history: RunHistory) -> None:
        self._attempts: defaultdict[str, list[StepRecord]] = defaultdict(list)
        for attempt in history.attempts:
            self._attempts[attempt.step_key].append(attempt)
        self.approvals: dict[str, ApprovalRecord] = {each.step_key: each for each in history.approvals}
        self._last = max((each.recorded or 0 for each in history.attempts), default=0)
        self._reached: set[str] = set()
        self._orphans: dict[str, StepRecord] = {}
        for attempts in self._attempts.values():
            self.add(attempts[-1])
        self._names: defaultdict[str, int] = defaultdict(int)
        for key in self._attempts:
            self._names[_without_count(key)] += 1

    def next_place(self) -> int:
        """The place of the next answer in the order of records."""
        self._last += 1
        return self._last

    def reach(self, key: str) -> list[StepRecord]:
        """The attempts under a key, the first one first; the key counts as reached."""
        self._reached.add(key)
        return self._attempts.get(key, [])

    def add(self, attempt: StepRecord) -> None:
        """An attempt is recorded, as the last one of its step."""
        if self._orphans:
            self._orphans.pop(attempt.step_key, None)
        if attempt.state is not StepState.SUCCEEDED and is_orphan(attempt):
            self._orphans[attempt.step_key] = attempt

    def orphan(self) -> StepRecord | None:
        """An attempt whose end nobody knows, if there is one."""
        return next(iter(self._orphans.values()), None)

    def namesakes(self, key: str) -> int:
        """How many keys of this name are recorded in the key's scope."""
        return self._names[_without_count(key)]

    def unreached(self) -> Iterable[StepRecord]:
        """The last attempt under every key that this play has not reached."""
        return [attempts[-1] for key, attempts in self._attempts.items() if key not in self._reached]


def is_orphan(attempt: StepRecord) -> bool:
    """Whether nobody knows how this attempt ended, and nobody has said."""
    if attempt.state is StepState.SUCCEEDED or attempt.kind is not StepKind.STEP:
        return False
    return attempt.state is StepState.RUNNING or (
        attempt.state is StepState.ORPHANED and attempt.resolved_at_ms is None
    )


def _without_count(key: str) -> str:
    return key.rpartition("#")[0]
