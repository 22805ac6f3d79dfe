"""Several store operations in one atomic transaction (specs, run store 3)."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from typing_extensions import override

from belay_core.errors import WriterError
from belay_core.stores.absent import AbsentJournal, AbsentWaitingStore
from belay_core.stores.attempts import AttemptContract
from belay_core.stores.journal import Journal
from belay_core.stores.run_contract import RunContract
from belay_core.stores.waiting import WaitingStore

T = TypeVar("T")

Hook: TypeAlias = Callable[[], None]
"""A short update in this process's memory; it is not awaited and must not raise."""


class Writer(Protocol):
    """The write boundary of one database; defects raise ``WriterError``."""

    @abstractmethod
    async def write(self, body: "Callable[[Transaction], Awaitable[T]]") -> T:
        """Run ``body`` with stores inside one transaction, and return its result.

        An exception of ``body`` rolls everything back and is raised here. If the database asks for a retry, or the
        connection is lost before the commit was sent, everything is rolled back and ``body`` is called again, up to
        ten times in all: it must be repeatable, and have no effects outside its transaction but those it registers
        with ``after_commit``. Inside an open write this one is a savepoint of it and is not repeated.

        Raises ``WriterError``: ``constraint`` and ``persistence_failed`` if begin or commit failed;
        ``commit_unknown`` if the reply to the commit was lost and its outcome cannot be found out; ``inside`` for a
        call that would wait for the write it is made in; ``ended`` for one made after its write has ended.
        """

    @abstractmethod
    def after_commit(self, hook: Hook) -> bool:
        """Run ``hook`` once after the outermost open write of this context has committed; returns whether there is one.

        If a savepoint or an attempt is rolled back, its hooks are dropped. Outside a write the hook is not run.
        """

    @abstractmethod
    def on_retry(self, listener: Hook) -> None:
        """Call ``listener`` before each retry of a write; a known listener is not added twice."""

    @property
    def queued(self) -> int:
        """Writes of this process that wait to be sent; 0 if the driver sends each immediately."""
        return 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """The stores inside one open write: each operation is a savepoint of it, none is repeated.

    They read what the write has written so far, and cannot be used after it.
    """

    runs: RunContract
    attempts: AttemptContract
    writer: Writer
    waiting: WaitingStore = field(default_factory=AbsentWaitingStore)
    journal: Journal = field(default_factory=AbsentJournal)

    async def write(self, body: "Callable[[Transaction], Awaitable[T]]") -> T:
        """Run ``body`` in a savepoint of this write."""
        return await self.writer.write(body)

    def after_commit(self, hook: Hook) -> bool:
        """Run ``hook`` once after the outermost write has committed; False if this one has ended."""
        return self.writer.after_commit(hook)


class AbsentWriter(Writer):
    """The writer of a driver without transactions over several operations."""

    @override
    async def write(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        raise WriterError("unsupported", "write", "this driver cannot put several operations in one transaction")

    @override
    def after_commit(self, hook: Hook) -> bool:
        return False

    @override
    def on_retry(self, listener: Hook) -> None:
        """No write is ever repeated here."""
