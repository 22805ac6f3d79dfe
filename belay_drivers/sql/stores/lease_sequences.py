"""Write sequences: what this process knows of the leases it holds (kernel 5)."""

import asyncio
from collections import deque
from typing import Self, TypeAlias

from belay_core.records.owner import Lease

_Key: TypeAlias = tuple[str, int, str]
"""A lease as run, epoch and nonce, which no two leases share; hashing all of one would cost more than a look-up."""


class Turn:
    """One run's queue of owned writes: who has taken the turn enters it, and passes it on when leaving.

    ``seq`` is the write sequence of the row, None where it has to be read. ``unclear`` says that a write was given up
    whose end nobody knows: it may still arrive, and would then raise the sequence just as a later one does.
    """

    __slots__ = ("_queue", "_taken", "seq", "unclear")

    def __init__(self, seq: int | None = None) -> None:
        self.seq = seq
        self.unclear = False
        self._taken = False
        self._queue: deque[asyncio.Future[None]] = deque()

    def take_at_once(self) -> bool:
        """Take the turn if nobody has it, as is so nearly always."""
        if self._taken:
            return False
        self._taken = True
        return True

    async def wait(self) -> None:
        """Come back with the turn; first come, first served."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(given)
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._pass_on()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is not None:
            # Whether the write counted is not known here; the next one reads.
            self.seq = None
            self.unclear = True
        self._pass_on()

    def _pass_on(self) -> None:
        while self._queue:
            given = self._queue.popleft()
            if not given.done():
                given.set_result(None)
                return
        self._taken = False


class Sequences:
    """The leases of this process; writes under one lease go one after another."""

    def __init__(self) -> None:
        self._turns: dict[_Key, Turn] = {}

    def learn(self, lease: Lease, seq: int) -> None:
        """A lease was acquired, and its row stands at this sequence."""
        self._turns[_key_of(lease)] = Turn(seq)

    def forget(self, lease: Lease) -> None:
        """The lease is over; who still waits in its queue finds that out from the database."""
        turn = self._turns.pop(_key_of(lease), None)
        if turn is not None:
            turn.seq = None

    def turn(self, lease: Lease) -> Turn:
        """The queue of this lease."""
        key = _key_of(lease)
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = Turn()
        return turn


def _key_of(lease: Lease) -> _Key:
    return (lease.run_id, lease.epoch, lease.owner.nonce)
