"""One commit shared by many: what is asked for while a flush is under way goes together with the next (kernel 1, 5).

This is the straight way of the writes that happen most. What is not plainly done here, because its fence failed,
another row stood in its way, the database refused the flush or no reply came, goes the way of a single write, which
tells what became of it. So a bad row harms no neighbour, and nothing is guessed.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from typing import Final, TypeAlias

from belay_drivers.sql.bulk import Plain, Work
from belay_drivers.sql.database import Database, Done, Unknown
from belay_drivers.sql.dialect import Failure
from belay_drivers.sql.scopes import admit_outside
from belay_drivers.sql.wire import Wire

MOST_ROWS: Final = 256
"""Rows of one flush at most."""
MOST_CHARACTERS: Final = 1 << 20
"""Length of the texts of one flush at most, unless a single write has more."""

Answer: TypeAlias = Plain | Unknown[None] | Failure | None
"""A failure is that of this write, which went alone; None is one that is not done, and nothing of it is stored."""


class _Waiting:
    """A write and who waits for it."""

    __slots__ = ("answered", "left", "over", "sent", "work")

    def __init__(self, work: Work, answered: "asyncio.Future[Answer]") -> None:
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


class Coalescer:
    """Gathers writes and flushes them, one flush at a time, first come, first served; alone, a write goes at once.

    What waits is as much as callers wait for: who gives a write is answered before giving the next, so a database that
    is slower than the work slows the work down.
    """

    def __init__(self, database: Database, wire: Wire) -> None:
        self._database = database
        self._wire = wire
        self._queue: deque[_Waiting] = deque()
        self._flushing: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many writes wait to be sent."""
        return len(self._queue)

    async def put(self, work: Work) -> Answer:
        """Do a write with the next flush.

        A caller who is cancelled before it is sent withdraws it; afterwards the flush goes on, and is waited for.
        """
        admit_outside(self._database)
        waiting = _Waiting(work, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._flushing is None:
            # In a context of its own: a flush belongs to none of those who share it.
            self._flushing = asyncio.create_task(self._flush_all(), context=Context())
        try:
            return await waiting.answered
        except asyncio.CancelledError:
            await self._leave(waiting)
            raise

    async def close(self) -> None:
        """Come back when nothing is under way any more."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
        await self._wire.close()

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

    async def _flush_all(self) -> None:
        try:
            # This began a turn of the loop after it was asked for: who wrote in that turn goes along.
            while self._queue:
                await self._flush(self._next())
                if self._queue:
                    # Those that were just answered may have their next write ready.
                    await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
        finally:
            self._flushing = None

    async def _flush(self, batch: list[_Waiting]) -> None:
        answers: Sequence[Answer] = [None] * len(batch)
        broken: Exception | None = None
        try:
            answers = await self._sent([each.work for each in batch])
        except Exception as error:  # noqa: BLE001  (a defect is told to everybody who shared it)
            broken = error
        finally:
            for each, answer in zip(batch, answers, strict=True):
                each.end(answer, broken)

    async def _sent(self, works: Sequence[Work]) -> Sequence[Answer]:
        sent = await self._database.send_once(lambda: self._wire.flush(works))
        if isinstance(sent, Done):
            return sent.value
        if isinstance(sent, Failure):
            return [sent if len(works) == 1 else None] * len(works)
        unknown: Unknown[None] = Unknown(sent.failure, None)
        return [unknown] * len(works)

    def _next(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        rows = size = 0
        while self._queue:
            first = self._queue[0]
            rows += first.work.rows
            size += first.work.size
            if batch and (rows > MOST_ROWS or size > MOST_CHARACTERS):
                break
            batch.append(self._queue.popleft())
            first.sent = True
        return batch
