"""What the parts of the SQL stores share, and how a command of a run's owner is sent to a known end."""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import floor
from typing import ClassVar, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from sqlalchemy import Connection, bindparam, select

from belay_core.clock import Clock, Millis, reading
from belay_core.errors import DatabaseError, StoreError
from belay_core.ids import IdSource
from belay_core.records.owner import Lease, OwnerId
from belay_core.stores.attempts import RunNotFound
from belay_core.stores.bundle import LeaseTimes
from belay_core.stores.notifier import Notifier
from belay_core.stores.run_contract import FenceLost
from belay_drivers.sql.connection.database import ATTEMPTS, Body, Sender, Sent, Unknown, undone
from belay_drivers.sql.connection.dialect import Failure
from belay_drivers.sql.connection.error_translation import code_of, translate_errors
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.fences import Fence
from belay_drivers.sql.statements.hot import HotStatements
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns, Undecodable, owner_of
from belay_drivers.sql.statements.run_rows import AttemptRows
from belay_drivers.sql.statements.write_ops import Applied, WriteOp
from belay_drivers.sql.stores.group_commit import GroupCommit

_Key: TypeAlias = tuple[str, int, str]
"""A lease as run, epoch and nonce, which no two leases share; hashing all of one would cost more than a look-up."""


class Turn:
    """One run's queue of owned writes: who has taken the turn enters it, and passes it on when leaving.

    ``seq`` is the write sequence of the row, None where it has to be read. ``unclear`` says that a write was given up
    whose end nobody knows: it may still arrive, and would then raise the sequence just as a later one does.
    """

    __slots__ = ("_queue", "_taken", "key", "seq", "unclear")

    def __init__(self, key: str, seq: int | None = None) -> None:
        self.key = key
        """The key of the run."""
        self.seq = seq
        self.unclear = False
        self._taken = False
        self._queue: deque[asyncio.Future[None]] = deque()

    def take_at_once(self) -> bool:
        """Take the turn if no other write has it."""
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
        if self._queue:
            self._pass_on()
        else:
            self._taken = False

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
        self._turns[_key_of(lease)] = Turn(key_of(lease.run_id), seq)

    def forget(self, lease: Lease) -> None:
        """The lease is over; who still waits in its queue finds that out from the database."""
        turn = self._turns.pop(_key_of(lease), None)
        if turn is not None:
            turn.seq = None

    def turn(self, lease: Lease) -> Turn:
        """The queue of this lease."""
        key = (lease.run_id, lease.epoch, lease.owner.nonce)
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = Turn(key_of(lease.run_id))
        return turn


def _key_of(lease: Lease) -> _Key:
    return (lease.run_id, lease.epoch, lease.owner.nonce)


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class FenceRejected(Enum):
    """The type of ``FENCE_REJECTED``: the fence did not hold, and nothing was written."""

    FENCE_REJECTED = "missed"


FENCE_REJECTED: Final = FenceRejected.FENCE_REJECTED

FencedWork: TypeAlias = Callable[[Connection, Fence], T | FenceRejected]
"""What is done under a fence."""


class Groupable(Protocol[T_co]):
    """Fenced work that can share a commit."""

    @abstractmethod
    def work(self, fence: Fence, /) -> WriteOp:
        """It as such work, under this fence."""

    @abstractmethod
    def answer(self, plain: Applied, fence: Fence, /) -> T_co:
        """What its plain answer means; a doubtful one is recalled instead."""


@dataclass(frozen=True, slots=True)
class Shared(Generic[T_co]):
    """Such work, made of two functions."""

    work: Callable[[Fence], WriteOp]
    answer: Callable[[Applied, Fence], T_co]


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
    notifier: Notifier
    sequences: Sequences
    children: AttemptRows
    hot: HotStatements
    group_commit: GroupCommit | None = None
    refresh: Callable[[], Awaitable[None]] = _nothing
    trusts_stale: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class _LeaseState:
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
    def known(cls, lease: Lease, seq: int) -> "_LeaseState":
        """How the row stands as far as this process knows."""
        return cls(lease.owner, lease.owner.nonce, lease.epoch, seq)

    @classmethod
    def read(cls, row: Columns) -> "_LeaseState":
        """How the row stands."""
        return cls(owner_of(row), row["last_nonce"], row["epoch"], row["write_seq"])


_LEASE_STATE: Final = select(
    runs.c.owner_host_id,
    runs.c.owner_pid,
    runs.c.owner_nonce,
    runs.c.last_nonce,
    runs.c.epoch,
    runs.c.write_seq,
).where(runs.c.run_id == bindparam("b_run"))


class EngineRole:
    """Commands of the engine over one database; their defects are of the class ``error``."""

    error: ClassVar[type[StoreError]]

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def _now(self) -> Millis:
        return reading(self._parts.clock)

    async def _run_command(self, method: str, work: Awaitable[T]) -> T:
        """Do the work of a command; a defect becomes an error that repeats nothing of what was sent."""
        return await translate_errors(work, partial(self._failed, method))

    def _failed(self, method: str, failure: DatabaseError | Undecodable) -> StoreError:
        """The error of a command that met this failure."""
        if isinstance(failure, Undecodable):
            return self.error("decode_failed", method, f"could not decode {failure.table} row")
        cause = {"category": failure.code, "cause": failure}
        busy = "the database was busy for too long, and nothing was stored"
        detail = busy if failure.code == "busy" and failure.transient else "database operation failed"
        return self.error(code_of(failure), method, detail, cause)


class OwnedRole(EngineRole):
    """Commands of a run's owner: one after another, each with a known end."""

    async def _owned(
        self,
        lease: Lease,
        work: FencedWork[T],
        *,
        reread: Body[T] | None = None,
        shared: Groupable[T] | None = None,
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
            if shared is not None and parts.group_commit is not None and turn.seq is not None and not turn.unclear:
                fence = Fence(lease, turn.seq, floor(parts.clock.now()), turn.key)
                answer = await parts.group_commit.put(shared.work(fence))
                if isinstance(answer, Applied):
                    turn.seq += 1
                    if answer.ambiguous and reread is not None:
                        return await parts.database.read(reread)
                    return shared.answer(answer, fence)
                if isinstance(answer, Failure) and not answer.again:
                    raise answer.error()
                sent = answer
            ended: T | FenceLost | RunNotFound | None = await self._cleared(lease, turn)
            if ended is None:
                ended = await self._to_known_end(lease, turn, work, reread=reread, sent=sent)
        if isinstance(ended, FenceLost | RunNotFound):
            parts.sequences.forget(lease)
        return ended

    async def _cleared(self, lease: Lease, turn: Turn) -> FenceLost | RunNotFound | None:
        """Shut out a write that was given up: once the sequence has moved on, it can arrive no more.

        Without this its late arrival would be taken for that of the next write, should that one's reply be lost.
        """
        if not turn.unclear:
            return None
        ended = await self._to_known_end(lease, turn, _moved_on, reread=None)
        if isinstance(ended, FenceLost | RunNotFound):
            return ended
        turn.unclear = False
        return None

    async def _to_known_end(
        self,
        lease: Lease,
        turn: Turn,
        work: FencedWork[T],
        *,
        reread: Body[T] | None,
        sent: "Unknown[None] | Failure | None" = None,
    ) -> T | FenceLost | RunNotFound:
        """Do the work in steps; ``sent`` is what became of it with others, None where nothing did."""
        unsure: Unknown[T | FenceRejected] | None = Unknown(sent.failure, None) if isinstance(sent, Unknown) else None
        tried = int(sent is not None)
        seq = turn.seq
        standing = await self._standing(lease) if seq is None or unsure else _LeaseState.known(lease, seq)
        for left in range(ATTEMPTS, -1, -1):
            if unsure is not None and standing is not None and seq is not None and standing.arrived(lease, seq):
                turn.seq = standing.seq
                return await self._answer_of(unsure, reread)
            if standing is None or not standing.owned_by(lease):
                return RunNotFound() if standing is None else FenceLost()
            if not left:
                break
            seq = turn.seq = standing.seq
            ended = await self._send(work, Fence(lease, seq, self._now()), tried=tried)
            tried = 0
            if isinstance(ended, Unknown):
                unsure = ended
            elif not isinstance(ended.value, FenceRejected):
                turn.seq += ended.kept
                # Where nothing of it stays, what was sent before may still arrive, and would be taken for the next.
                turn.unclear = unsure is not None and not ended.kept
                return ended.value
            standing = await self._standing(lease)
        raise DatabaseError("unknown" if unsure is None else unsure.failure.code)

    async def _send(self, work: FencedWork[T], fence: Fence, *, tried: int = 0) -> Sent[T | FenceRejected]:
        return await self._parts.database.send(lambda tx: work(tx, fence), tried=tried)

    async def _answer_of(self, unsure: Unknown[T | FenceRejected], reread: Body[T] | None) -> T:
        if unsure.value is not None and not isinstance(unsure.value, FenceRejected):
            return unsure.value
        if reread is None:
            raise unsure.failure.error()
        return await self._parts.database.read(reread)

    async def _standing(self, lease: Lease) -> _LeaseState | None:
        bound = {"b_run": key_of(lease.run_id)}
        row = await self._parts.database.read(lambda tx: tx.execute(_LEASE_STATE, bound).mappings().one_or_none())
        return None if row is None else _LeaseState.read(row)


def _moved_on(tx: Connection, fence: Fence) -> bool | FenceRejected:
    return undone(tx, FENCE_REJECTED) if fence.hold(tx) is None else True
