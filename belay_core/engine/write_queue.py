"""Whose write is next: the owned writes of a run are given one after another (kernel 5 and 13)."""

import asyncio
from collections import deque
from typing import Final

from belay_core.records.step_record import StepRecord
from belay_core.stores.attempts import RecordOutcome

_MOST_ATTEMPTS: Final = 128
"""Attempts of one command at most, where several share it."""
_MOST_CHARACTERS: Final = 1 << 18
"""Length of the texts of one command at most, where several share it."""


class QueuedWrite:
    """A write that waits for its turn; ``attempts`` are what it records, none where it is another command."""

    __slots__ = ("alone", "answered", "attempts")

    def __init__(self, attempts: tuple[StepRecord, ...]) -> None:
        self.attempts = attempts
        self.alone = not attempts
        """Whether it shares its command with no other."""
        self.answered: asyncio.Future[RecordOutcome | None] = asyncio.get_running_loop().create_future()
        """None says that it is its turn; an answer, that another has taken its attempts along."""

    @property
    def has_turn(self) -> bool:
        """Whether it was given the turn."""
        answered = self.answered
        if not answered.done() or answered.cancelled() or answered.exception() is not None:
            return False
        return answered.result() is None


class WriteQueue:
    """The turn to write, and who waits for it in the order in which they came."""

    def __init__(self) -> None:
        self._taken = False
        self._queue: deque[QueuedWrite] = deque()

    def take_at_once(self) -> bool:
        """Take the turn if nobody has it; who has it passes it on."""
        if self._taken:
            return False
        self._taken = True
        return True

    async def wait(self, attempts: tuple[StepRecord, ...] = ()) -> RecordOutcome | None:
        """Come back with the turn, or with the answer to these attempts where who had it took them along."""
        waiting = QueuedWrite(attempts)
        self._queue.append(waiting)
        try:
            return await waiting.answered
        except asyncio.CancelledError:
            if waiting.has_turn:
                self.pass_on()
            raise

    def pass_on(self) -> None:
        """Give the turn to the next one; those who were cancelled want none."""
        while self._queue:
            waiting = self._queue.popleft()
            if not waiting.answered.done():
                waiting.answered.set_result(None)
                return
        self._taken = False

    def take_along(self, attempts: tuple[StepRecord, ...]) -> list[QueuedWrite]:
        """Those who are next and whose attempts may share a command with these; each is to be answered or put back."""
        found: list[QueuedWrite] = []
        if not self._queue:
            return found
        room = _MOST_ATTEMPTS - len(attempts)
        left = _MOST_CHARACTERS - _size(attempts)
        while self._queue:
            waiting = self._queue[0]
            if not waiting.answered.done():
                room -= len(waiting.attempts)
                left -= _size(waiting.attempts)
                if waiting.alone or room < 0 or left < 0:
                    break
                found.append(waiting)
            self._queue.popleft()
        return found

    def put_back(self, found: list[QueuedWrite]) -> None:
        """They are next again, each with a command of its own."""
        for waiting in found:
            waiting.alone = True
        self._queue.extendleft(reversed(found))


def _size(attempts: tuple[StepRecord, ...]) -> int:
    return sum(len(each.outcome or "") + len(each.error or "") + len(each.meta) for each in attempts)
