"""The order of calls among answers, as the records have it.

Each record says after which answer its call was opened (``asked``), and how many calls had been opened when its answer
got its place (``opened``). A body that is deterministic between its calls opens all of them again without needing a
later answer. So a replay that gives an answer only when they are open takes the branch of the first execution, however
long the author's code waits for something else in between.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, cast

from belay_core.records.step_record import RETRIED, StepRecord

ASKED: Final = "asked"
OPENED: Final = "opened"
CODE: Final = "code"


class RecordedOrder:
    """Which recorded calls this execution has opened, and which it has yet to open before an answer is due."""

    def __init__(self, attempts: Sequence[StepRecord], code: str) -> None:
        self.code = code
        """The digest of the body's code."""
        self.count = 0
        """How many calls were opened in this execution."""
        self.last_place = 0
        """The last place that an answer has in the order of records."""
        self._opened: set[str] = set()
        self._foreign: set[str] = set()
        """Calls that other code recorded: this code need not have them."""
        self._counts: dict[int, int] = {}
        self._taken_back = [
            (attempt.recorded, until)
            for attempt in attempts
            if attempt.recorded is not None and type(until := _facts(attempt.meta, RETRIED).get(RETRIED)) is int
        ]
        """The place of each failure that a retry of the run took back, and the last place at that time."""
        first: dict[str, int] = {}
        for attempt in attempts:
            self.last_place = max(self.last_place, attempt.recorded or 0)
            facts = _facts(attempt.meta)
            asked, opened = facts.get(ASKED), facts.get(OPENED)
            if type(asked) is not int or type(opened) is not int:
                continue
            if self._is_taken_back(asked):
                # Without the failure the body need not open it again.
                continue
            first.setdefault(attempt.step_key, asked)
            if facts.get(CODE) != code:
                self._foreign.add(attempt.step_key)
            elif attempt.recorded is not None and not self._is_taken_back(attempt.recorded):
                self._counts[attempt.recorded] = opened
        self._expected = sorted(((asked, key) for key, asked in first.items()), reverse=True)
        """Recorded calls that are not opened yet, the one that was opened first at the end."""
        self.behind = bool(self._expected)
        """Whether there may be recorded calls that are not open yet; once it is False it stays so."""

    def follows_failure(self, attempt: StepRecord) -> bool:
        """Whether a failure that was taken back may have led to this: it is that one, or came after it."""
        if not self._taken_back:
            return False
        asked = _facts(attempt.meta).get(ASKED)
        places = [place for place in (attempt.recorded, asked) if type(place) is int]
        return any(self._is_taken_back(place) for place in places)

    def _is_taken_back(self, place: int) -> bool:
        return any(begin <= place <= until for begin, until in self._taken_back)

    def open(self, key: str) -> None:
        """A call is opened; it has been counted."""
        self._opened.add(key)

    def give_up(self, key: str) -> None:
        """The call will not be opened by this code."""
        if key:
            self._opened.add(key)
        else:
            self._counts.clear()

    def is_foreign(self, key: str) -> bool:
        """Whether other code recorded the call."""
        return key in self._foreign

    def missing(self) -> str | None:
        """The first recorded call that is not open yet; None where the replay has caught up."""
        expected, opened = self._expected, self._opened
        while expected and expected[-1][1] in opened:
            expected.pop()
        return expected[-1][1] if expected else None

    def missing_before(self, place: int) -> str | None:
        """The first call that was open before the answer of this place, and is not yet; "" for one not recorded."""
        if (key := self.missing()) is not None and self._expected[-1][0] < place:
            return key
        if self.count < self._counts.get(place, 0):
            return ""
        if key is None and place >= max(self._counts, default=0):
            self.behind = False
        return None


def is_retried(attempt: StepRecord) -> bool:
    """Whether a retry of the run took this failure back."""
    return RETRIED in _facts(attempt.meta, RETRIED)


def _facts(meta: str, member: str = ASKED) -> dict[str, Any]:
    if f'"{member}"' not in meta:
        return {}
    found: object = json.loads(meta)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
