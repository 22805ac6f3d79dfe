"""Write sequences: what this process knows of the leases it holds (kernel 5)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from belay_core.records.owner import Lease


class Turn:
    """One run's queue of owned writes; ``seq`` is the write sequence of the row, None where it has to be read.

    ``unclear`` says that a write was given up whose end nobody knows: it may still arrive, and would then raise the
    sequence just as a later one does.
    """

    def __init__(self, seq: int | None = None) -> None:
        self.seq = seq
        self.unclear = False
        self.lock = asyncio.Lock()


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

    @asynccontextmanager
    async def turn(self, lease: Lease) -> AsyncGenerator[Turn]:
        """Wait until no other write under this lease is under way."""
        turn = self._turns.setdefault(lease, Turn())
        async with turn.lock:
            try:
                yield turn
            except BaseException:
                # Whether the write counted is not known here; the next one reads.
                turn.seq = None
                turn.unclear = True
                raise
