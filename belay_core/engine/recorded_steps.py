"""What is recorded of a run's calls, and which of it this execution has taken."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable

from belay_core.engine.failures import read_facts
from belay_core.records.commands import RunHistory
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord

INSTEAD_OF = "instead_of"
"""In the ``meta`` of an attempt that was not begun: the recorded step that may be the same under another name."""


class RecordedSteps:
    """The attempts of a run by step key, and its approvals."""

    def __init__(self, history: RunHistory) -> None:
        self._attempts: defaultdict[str, list[StepRecord]] = defaultdict(list)
        for attempt in history.attempts:
            self._attempts[attempt.step_key].append(attempt)
        self.approvals: dict[str, ApprovalRecord] = {each.step_key: each for each in history.approvals}
        self.branches: set[str] = set()
        """The paths of the branches that this execution has opened."""
        self._reached: set[str] = set()
        self._orphans: dict[str, StepRecord] = {}
        for attempts in self._attempts.values():
            self.add(attempts[-1])
        self._effects = _effects(attempts[-1] for attempts in self._attempts.values())
        self._names: defaultdict[str, int] = defaultdict(int)
        for key in self._attempts:
            self._names[_without_count(key)] += 1

    def reach(self, key: str) -> list[StepRecord]:
        """The attempts under a key, the first one first; the key counts as reached."""
        self._reached.add(key)
        if self._effects:
            self._effects.pop(key, None)
        return self._attempts.get(key, [])

    def add(self, attempt: StepRecord) -> None:
        """An attempt is recorded, as the last one of its step."""
        if self._orphans:
            self._orphans.pop(attempt.step_key, None)
        if attempt.state is not StepState.SUCCEEDED and is_orphan(attempt):
            self._orphans[attempt.step_key] = attempt

    def orphans(self) -> list[StepRecord]:
        """All attempts whose end is unknown."""
        return list(self._orphans.values())

    def orphan(self, key: str | None = None) -> StepRecord | None:
        """An attempt whose end is unknown, under this key if one is given; None if there is none."""
        return next(iter(self._orphans.values()), None) if key is None else self._orphans.get(key)

    def namesakes(self, key: str) -> int:
        """How many keys of this name are recorded in the key's scope."""
        return self._names[_without_count(key)]

    def untaken(
        self, key: str, made: Container[str], follows_failure: Callable[[StepRecord], bool]
    ) -> StepRecord | None:
        """The recorded effect, if there is one, of which the new call under this key may be a repetition.

        Not those of branches that are open beside this call, nor calls that are ``made`` and not awaited yet: these
        take their own. Nor what the body did upon a failure that a retry of the run took back. Of a branch with the
        same number where there is one, as a renamed map has it.
        """
        here = _scope_of(key)
        found = [
            each
            for other, each in self._effects.items()
            if other not in made
            and not follows_failure(each)
            and (here.startswith(there := _scope_of(other)) or there not in self.branches)
        ]
        alike = [each for each in found if _number_of(each.step_key) == _number_of(key)]
        return next(iter(alike or found), None)

    def knows(self, path: str) -> bool:
        """Whether calls of this name, or branches below it, are recorded; ``path`` is scope and name, no count."""
        return any(key.startswith(f"{path}#") for key in self._attempts)

    def unreached(self) -> Iterable[StepRecord]:
        """The last attempt under every key that this play has not reached."""
        return [attempts[-1] for key, attempts in self._attempts.items() if key not in self._reached]


def is_orphan(attempt: StepRecord) -> bool:
    """Whether the end of this attempt is unknown and has not been resolved."""
    if attempt.state is StepState.SUCCEEDED or attempt.kind is not StepKind.STEP:
        return False
    return attempt.state is StepState.RUNNING or (
        attempt.state is StepState.ORPHANED and attempt.resolved_at_ms is None
    )


def _without_count(key: str) -> str:
    return key.rpartition("#")[0]


def _effects(last: Iterable[StepRecord]) -> dict[str, StepRecord]:
    """Steps that are not idempotent, and whose effect took place or may have, by key.

    Not one that an operator has said to be the same as a step that is recorded under another name.
    """
    steps = [each for each in last if each.kind is StepKind.STEP and not each.idempotent]
    renamed = {str(read_facts(each.meta).get(INSTEAD_OF)) for each in steps if _is_word(each, "happened")}
    return {
        each.step_key: each
        for each in steps
        if each.step_key not in renamed
        and (each.state in _MAY_HAVE_ACTED or (each.state is StepState.ORPHANED and not _is_word(each, "retry")))
        and (each.state is not StepState.ORPHANED or f'"{INSTEAD_OF}"' not in each.meta or _is_word(each, "happened"))
    }


_MAY_HAVE_ACTED = frozenset({StepState.SUCCEEDED, StepState.ABANDONED, StepState.RUNNING})


def _is_word(attempt: StepRecord, word: str) -> bool:
    return '"resolution"' in attempt.meta and read_facts(attempt.meta).get("resolution") == word


def _scope_of(key: str) -> str:
    return key[: key.rfind("/") + 1]


def _number_of(key: str) -> str:
    """The number of the innermost branch, in brackets."""
    return _scope_of(key).rpartition("[")[2]
