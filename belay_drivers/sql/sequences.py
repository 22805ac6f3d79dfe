"""Write sequences: what this process knows of the leases it holds (kernel 5)."""

import asyncio
from types import TracebackType
from typing import Self

from belay_core.records.owner import Lease


class Turn:
    """One run's queue of owned writes; to be entered for each, and then no other write under its lease is under way.

    ``seq`` is the write sequence of the row, None where it has to be read. ``unclear`` says that a write was given up
    whose end nobody knows: it may still arrive, and would then raise the sequence just as a later one does.
    """

    __slots__ = ("_lock", "seq", "unclear")

    def __init__(self, seq: int | None = None) -> None:
        self.seq = seq
        self.unclear = False
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._lock.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Whether the write counted is not known here; the next one reads.
            self.seq = None
            self.unclear = True
        self._lock.release()


class Sequences:
    """The leases of this process; writes under one lease go one after another."""

    def __init__(self) -> None:
        self._turns: dict[Lease, Turn] = {}

    def learn(self, lease: Lease, seq: int) -> None:
        """A lease was acquired, and its row stands at this sequence."""
        self._turns[lease] = Turn(seq)

    def forget(self, lease: Lease) -> None:
        """The lease is over; who still waits in its queue finds that out from the database."""
        turn = self._turns.pop(lease, None)
        if turn is not None:
            turn.seq = None

    def turn(self, lease: Lease) -> Turn:
        """The queue of this lease."""
        turn = self._turns.get(lease)
        if turn is None:
            turn = self._turns[lease] = Turn()
        return turn
