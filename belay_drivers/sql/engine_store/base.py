"""What every role of the engine's store stands on: the parts it shares, and how a command is sent."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection, bindparam, select

from belay_core.errors import DatabaseError, EngineStoreError
from belay_core.ids import IdSource
from belay_core.moments import Clock, Millis, reading
from belay_core.outcomes.attempts import RunNotFound
from belay_core.outcomes.runs import FenceLost
from belay_core.records.owner import Lease, OwnerId
from belay_core.stores.bundle import LeaseTimes
from belay_core.stores.wakes import Wakes
from belay_drivers.sql.bulk import Plain
from belay_drivers.sql.bulk import Work as SharedWork
from belay_drivers.sql.children import Children
from belay_drivers.sql.coalescing import Coalescer
from belay_drivers.sql.database import ATTEMPTS, Body, Sender, Sent, Unknown, undone
from belay_drivers.sql.dialect import Failure
from belay_drivers.sql.fences import Fence
from belay_drivers.sql.guarding import code_of, guarded
from belay_drivers.sql.hot import HotPaths
from belay_drivers.sql.keys import key_of
from belay_drivers.sql.rows import Columns, Undecodable, owner_of
from belay_drivers.sql.sequences import Sequences, Turn
from belay_drivers.sql.tables import runs

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Missed(Enum):
    """The type of ``MISSED``: the fence did not hold, and nothing was written."""

    MISSED = "missed"


MISSED: Final = Missed.MISSED

Work: TypeAlias = Callable[[Connection, Fence], T | Missed]
"""What is done under a fence."""


class Sharing(Protocol[T_co]):
    """Fenced work that can share a commit."""

    @abstractmethod
    def work(self, fence: Fence, /) -> SharedWork:
        """It as such work, under this fence."""

    @abstractmethod
    def answer(self, plain: Plain, fence: Fence, /) -> T_co:
        """What its plain answer means; a doubtful one is recalled instead."""


@dataclass(frozen=True, slots=True)
class Shared(Generic[T_co]):
    """Such work, made of two functions."""

    work: Callable[[Fence], SharedWork]
    answer: Callable[[Plain, Fence], T_co]


async def _nothing() -> None:
    """The clock needs no looking after."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the roles share: one database with the clock, names and leases of this process.

    ``refresh`` looks after the clock, and ``trusts_stale`` is whether it can be believed about owners that seem
    silent.
    """

    database: Sender
    clock: Clock
    ids: IdSource
    lease: LeaseTimes
    wakes: Wakes
    sequences: Sequences
    children: Children
    hot: HotPaths
    coalescer: Coalescer | None = None
    refresh: Callable[[], Awaitable[None]] = _nothing
    trusts_stale: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class _Standing:
    """Who owns a run, whose lease was the last one, and how often was written under it."""

    owner: OwnerId | None
    last_nonce: str | None
    epoch: int
    seq: int

    def owned_by(self, lease: Lease) -> bool:
        """Whether this lease holds."""
        return self.owner == lease.owner and self.epoch == lease.epoch

    def arrived(self, lease: Lease, seq: int) -> bool:
        """Whether the write that expected this sequence happened: the fence counts each one once.

        A run that was let go keeps the name of its last lease.
        """
        return (self.last_nonce, self.epoch, self.seq) == (lease.owner.nonce, lease.epoch, seq + 1)

    @classmethod
    def known(cls, lease: Lease, seq: int) -> "_Standing":
        """How the row stands as far as this process knows."""
        return cls(lease.owner, lease.owner.nonce, lease.epoch, seq)

    @classmethod
    def read(cls, row: Columns) -> "_Standing":
        """How the row stands."""
        return cls(owner_of(row), row["last_nonce"], row["epoch"], row["write_seq"])


_STANDING: Final = select(
    runs.c.owner_host_id,
    runs.c.owner_pid,
    runs.c.owner_nonce,
    runs.c.last_nonce,
    runs.c.epoch,
    runs.c.write_seq,
).where(runs.c.run_id == bindparam("b_run"))


class Role:
    """A group of commands over the shared parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def _now(self) -> Millis:
        return reading(self._parts.clock)

    async def _guard(self, method: str, work: Awaitable[T]) -> T:
        """Do the work of a command; a defect becomes an error that repeats nothing of what was sent."""
        return await guarded(work, partial(failed, method))


def failed(method: str, failure: DatabaseError | Undecodable) -> EngineStoreError:
    """The error of a command that met this failure."""
    if isinstance(failure, Undecodable):
        return EngineStoreError("decode_failed", method, f"could not decode {failure.table} row")
    cause = {"category": failure.code, "cause": failure}
    return EngineStoreError(code_of(failure), method, "database operation failed", cause)


class OwnedRole(Role):
    """Commands of a run's owner: one after another, each with a known end."""

    async def _owned(
        self,
        lease: Lease,
        work: Work[T],
        *,
        recall: Body[T] | None = None,
        shared: Sharing[T] | None = None,
    ) -> T | FenceLost | RunNotFound:
        """Do fenced work under a lease.

        Its answer, should the reply be lost or doubtful, is read again by ``recall``. ``shared`` is the same work as
        one that shares a commit with others; it is tried first.
        """
        parts = self._parts
        turn = parts.sequences.turn(lease)
        if not turn.take_at_once():
            await turn.wait()
        with turn:
            sent: Unknown[None] | Failure | None = None
            if shared is not None and parts.coalescer is not None and turn.seq is not None and not turn.unclear:
                fence = Fence(lease, turn.seq, self._now())
                answer = await parts.coalescer.put(shared.work(fence))
                if isinstance(answer, Plain):
                    turn.seq += 1
                    if answer.doubtful and recall is not None:
                        return await parts.database.read(recall)
                    return shared.answer(answer, fence)
                if isinstance(answer, Failure) and not answer.again:
                    raise answer.error()
                sent = answer
            ended: T | FenceLost | RunNotFound | None = await self._cleared(lease, turn)
            if ended is None:
                ended = await self._to_known_end(lease, turn, work, recall=recall, sent=sent)
        if isinstance(ended, FenceLost | RunNotFound):
            parts.sequences.forget(lease)
        return ended

    async def _cleared(self, lease: Lease, turn: Turn) -> FenceLost | RunNotFound | None:
        """Shut out a write that was given up: once the sequence has moved on, it can arrive no more.

        Without this its late arrival would be taken for that of the next write, should that one's reply be lost.
        """
        if not turn.unclear:
            return None
        ended = await self._to_known_end(lease, turn, _moved_on, recall=None)
        if isinstance(ended, FenceLost | RunNotFound):
            return ended
        turn.unclear = False
        return None

    async def _to_known_end(
        self,
        lease: Lease,
        turn: Turn,
        work: Work[T],
        *,
        recall: Body[T] | None,
        sent: "Unknown[None] | Failure | None" = None,
    ) -> T | FenceLost | RunNotFound:
        """Do the work in steps; ``sent`` is what became of it with others, None where nothing did."""
        unsure: Unknown[T | Missed] | None = Unknown(sent.failure, None) if isinstance(sent, Unknown) else None
        tried = int(sent is not None)
        seq = turn.seq
        standing = await self._standing(lease) if seq is None or unsure else _Standing.known(lease, seq)
        for left in range(ATTEMPTS, -1, -1):
            if unsure is not None and standing is not None and seq is not None and standing.arrived(lease, seq):
                turn.seq = standing.seq
                return await self._answer_of(unsure, recall)
            if standing is None or not standing.owned_by(lease):
                return RunNotFound() if standing is None else FenceLost()
            if not left:
                break
            seq = turn.seq = standing.seq
            ended = await self._send(work, Fence(lease, seq, self._now()), tried=tried)
            tried = 0
            if isinstance(ended, Unknown):
                unsure = ended
            elif not isinstance(ended.value, Missed):
                turn.seq += ended.kept
                # Where nothing of it stays, what was sent before may still arrive, and would be taken for the next.
                turn.unclear = unsure is not None and not ended.kept
                return ended.value
            standing = await self._standing(lease)
        raise DatabaseError("unknown" if unsure is None else unsure.failure.code)

    async def _send(self, work: Work[T], fence: Fence, *, tried: int = 0) -> Sent[T | Missed]:
        return await self._parts.database.send(lambda tx: work(tx, fence), tried=tried)

    async def _answer_of(self, unsure: Unknown[T | Missed], recall: Body[T] | None) -> T:
        if unsure.value is not None and not isinstance(unsure.value, Missed):
            return unsure.value
        if recall is None:
            raise unsure.failure.error()
        return await self._parts.database.read(recall)

    async def _standing(self, lease: Lease) -> _Standing | None:
        bound = {"b_run": key_of(lease.run_id)}
        row = await self._parts.database.read(lambda tx: tx.execute(_STANDING, bound).mappings().one_or_none())
        return None if row is None else _Standing.read(row)


def _moved_on(tx: Connection, fence: Fence) -> bool | Missed:
    return undone(tx, MISSED) if fence.hold(tx) is None else True
