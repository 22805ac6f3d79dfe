"""One commit shared by many: what is asked for while a flush is under way goes together with the next (kernel 1, 5).

This is the straight way of the writes that happen most. What is not plainly done here, because its fence failed,
another row stood in its way, the database refused the flush or no reply came, goes the way of a single write, which
tells what became of it. So a bad row harms no neighbour, and nothing is guessed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Final, TypeAlias

from belay_drivers.sql.connection.database import Database, Done, Unknown
from belay_drivers.sql.connection.dialect import Failure
from belay_drivers.sql.connection.statement_channel import StatementChannel
from belay_drivers.sql.statements.write_ops import Applied, WriteOp

MOST_IDLE: Final = 0.5
"""The share of a flush in which nobody works any more, beyond which halves do not pay."""
INITIAL_IDLE: Final = 0.25
"""The share that is assumed where halves are tried."""
LATEST_WEIGHT: Final = 1 / 32
"""How much the last flush counts, against those before."""
TRY_AGAIN_AFTER: Final = 256
"""Flushes after which halves are tried again."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class PipelineTuner:
    """Observes flushes and writers; the decision is ``in_halves``."""

    def __init__(self, now: Callable[[], float] = _loop_time) -> None:
        self._now = now
        self._wrote = self._began = 0.0
        self._idle = INITIAL_IDLE
        self._whole = 0
        """Flushes left until halves are tried again."""

    @property
    def in_halves(self) -> bool:
        """Whether half of the writers get their results only when the next flush is under way."""
        return not self._whole

    def wrote(self) -> None:
        """Note a new write."""
        self._wrote = self._now()

    def flush_began(self) -> None:
        """Note the start of a flush."""
        self._began = self._now()

    def flush_ended(self) -> None:
        """Note the end of a flush."""
        if self._whole:
            self._whole -= 1
            return
        ended = self._now()
        idle = (ended - max(self._began, self._wrote)) / max(ended - self._began, 1e-9)
        self._idle += LATEST_WEIGHT * (idle - self._idle)
        if self._idle > MOST_IDLE:
            self._idle, self._whole = INITIAL_IDLE, TRY_AGAIN_AFTER


MOST_ROWS: Final = 256
"""Rows of one flush at most."""
MOST_CHARACTERS: Final = 1 << 20
"""Length of the texts of one flush at most, unless a single write has more."""
FEWEST: Final = 16
"""Writers that are worth two flushes."""
TURNS: Final = 4
"""Of the loop, within which who is told comes back with the next write, or has something else to do."""

Answer: TypeAlias = Applied | Unknown[None] | Failure | None
"""A failure is that of this write, which went alone; None is one that is not done, and nothing of it is stored."""


class _Waiting:
    """A write and who waits for it."""

    __slots__ = ("answered", "left", "over", "sent", "work")

    def __init__(self, work: WriteOp, answered: "asyncio.Future[Answer]") -> None:
        self.work = work
        self.answered = answered
        self.sent = False
        self.over = False
        """Whether its flush has ended."""
        self.left: asyncio.Future[None] | None = None
        """Set when the flush has ended, where its caller was cancelled meanwhile."""

    def end(self, answer: Answer, broken: Exception | None) -> None:
        """Tell whoever waits that the flush has ended, and how."""
        self.over = True
        if self.left is not None:
            self.left.set_result(None)
        elif self.answered.done():
            return
        elif broken is not None:
            self.answered.set_exception(broken)
        else:
            self.answered.set_result(answer)


_WORK: Final = attrgetter("work")
_Ended: TypeAlias = tuple[_Waiting, Answer, Exception | None]


class GroupCommit:
    """Gathers writes and flushes them, one flush at a time, first come, first served; alone, a write goes at once.

    What waits is as much as callers wait for: who gives a write is answered before giving the next, so a database that
    is slower than the work slows the work down.
    """

    def __init__(self, database: Database, channel: StatementChannel, pace: PipelineTuner | None = None) -> None:
        self._database = database
        self._channel = channel
        self._pace = pace
        """None where the database works in this process, and so not beside it."""
        self._queue: deque[_Waiting] = deque()
        self._ended: list[_Ended] = []
        """Those who are told when the next flush is under way."""
        self._flushing: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many writes wait to be sent."""
        return len(self._queue)

    async def put(self, work: WriteOp) -> Answer:
        """Do a write with the next flush.

        A caller who is cancelled before it is sent withdraws it; afterwards the flush goes on, and is waited for.
        """
        self._database.check_call()
        waiting = _Waiting(work, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._pace is not None:
            self._pace.wrote()
        if self._flushing is None or self._flushing.done():
            self._begin()
        try:
            return await waiting.answered
        except asyncio.CancelledError:
            await self._leave(waiting)
            raise

    async def close(self) -> None:
        """Come back when nothing is under way any more."""
        while self._flushing is not None and self._is_flushing:
            await asyncio.wait([self._flushing])
        await self._channel.close()

    async def _leave(self, waiting: _Waiting) -> None:
        """The caller goes away: withdraw its write, or wait for what cannot be withdrawn any more."""
        if not waiting.sent:
            self._queue.remove(waiting)
            return
        if waiting.over:
            return
        waiting.left = asyncio.get_running_loop().create_future()
        while not waiting.left.done():
            try:
                await asyncio.wait([waiting.left])
            except asyncio.CancelledError:
                # A second cancellation says nothing new.
                continue

    @property
    def _is_flushing(self) -> bool:
        """Whether somebody sends what waits; a task that is cancelled before it begins never says that it ends."""
        return self._flushing is not None and not self._flushing.done()

    def _begin(self) -> None:
        # In a context of its own: a flush belongs to none of those who share it.
        self._flushing = asyncio.create_task(self._flush_all(), context=Context())

    async def _flush_all(self) -> None:
        try:
            # This began a turn of the loop after it was asked for: who wrote in that turn goes along.
            while self._queue:
                await self._flush(self._next())
                if self._pace is None or self._concerned < FEWEST:
                    self._tell()
                    # Those that were just answered may have their next write ready.
                    if self._queue:
                        await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
                else:
                    self._pace.flush_ended()
                    await (self._go_on_in_halves() if self._pace.in_halves else self._go_on_together())
        finally:
            self._tell()
            self._flushing = None
            if self._queue:
                # It was cancelled, and they were not.
                self._begin()

    @property
    def _concerned(self) -> int:
        return len(self._ended) + len(self._queue)

    async def _go_on_together(self) -> None:
        """All are told, and those who come back at once share the next flush."""
        concerned = self._concerned
        self._tell()
        await self._turns(concerned)

    async def _go_on_in_halves(self) -> None:
        """Those of the last flush are told while the next is under way; where none is, half of them make one."""
        if not self._queue:
            self._tell(len(self._ended) // 2)
            await self._turns(1)
        if not self._queue:
            self._tell()

    async def _turns(self, writes: int) -> None:
        """Give those who were told the time to write; come back as soon as so many writes wait."""
        for _ in range(TURNS):
            await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
            if len(self._queue) >= writes:
                return

    def _tell(self, most: int | None = None) -> None:
        told, self._ended = self._ended[:most], self._ended[len(self._ended) if most is None else most :]
        for waiting, answer, broken in told:
            waiting.end(answer, broken)

    async def _flush(self, batch: list[_Waiting]) -> None:
        ended: list[_Ended] = list(zip(batch, repeat(None), repeat(None), strict=False))
        if self._ended:
            # The flush is sent in this turn of the loop, where nothing else is on the wire, and they begin in the next.
            asyncio.get_running_loop().call_soon(self._tell, len(self._ended))
        if self._pace is not None:
            self._pace.flush_began()
        try:
            answers = await self._sent(list(map(_WORK, batch)))
            ended = list(zip(batch, answers, repeat(None, len(batch)), strict=True))
        except Exception as error:  # noqa: BLE001  (a defect is told to everybody who shared it)
            ended = [(each, None, error) for each in batch]
        finally:
            self._ended += ended

    async def _sent(self, works: Sequence[WriteOp]) -> Sequence[Answer]:
        sent = await self._database.send_once(partial(self._channel.flush, works))
        if isinstance(sent, Done):
            return sent.value
        if isinstance(sent, Failure):
            return [sent if len(works) == 1 else None] * len(works)
        unknown: Unknown[None] = Unknown(sent.failure, None)
        return [unknown] * len(works)

    def _next(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        most = (self._concerned + 1) // 2 if self._ended else MOST_ROWS
        rows = size = 0
        while self._queue:
            first = self._queue[0]
            rows += first.work.rows
            size += first.work.size
            if batch and (rows > MOST_ROWS or size > MOST_CHARACTERS or len(batch) >= most):
                break
            batch.append(self._queue.popleft())
            first.sent = True
        return batch
