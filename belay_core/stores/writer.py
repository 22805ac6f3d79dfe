"""Several store operations in one transaction, which happens wholly or not at all (specs, run store 3)."""

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
"""A short update of this process's memory; it is not awaited and must not fail."""


class Writer(Protocol):
    """The write boundary of one database; defects raise ``WriterError``."""

    @abstractmethod
    async def write(self, body: "Callable[[Transaction], Awaitable[T]]") -> T:
        """Do all that ``body`` does with the stores it is handed, in one transaction, and give back what it gives.

        What ``body`` raises undoes everything and is raised here. Where the database asks for it, or the connection
        is lost before the commit was sent, everything is undone and ``body`` is called again, up to ten times in
        all: it must be fit to be repeated, and have no effects outside its transaction but those it registers with
        ``after_commit``. Inside an open write this one is a savepoint of it and is not repeated.

        Raises ``WriterError``: ``constraint`` and ``persistence_failed`` where beginning or committing failed;
        ``commit_unknown`` where no reply came to the commit and the database cannot tell any more; ``inside`` for a
        call that would have to wait for the write it is made in; ``ended`` for one made after its write was over.
        """

    @abstractmethod
    def after_commit(self, hook: Hook) -> bool:
        """Run ``hook`` once after the outermost write under way here has committed; whether there is one.

        Where a savepoint or an attempt is rolled back, so are the hooks it registered. Outside a write the hook is
        not run at all.
        """

    @abstractmethod
    def on_retry(self, listener: Hook) -> None:
        """Call ``listener`` whenever a write is going to be repeated; one that is known already is not added."""

    @property
    def queued(self) -> int:
        """How many writes of this process wait to be sent; 0 where a driver sends each at once."""
        return 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """The stores as they are inside one open write: each operation is a savepoint of it, none is repeated.

    They read what the write has written so far, and end with it.
    """

    runs: RunContract
    attempts: AttemptContract
    writer: Writer
    waiting: WaitingStore = field(default_factory=AbsentWaitingStore)
    journal: Journal = field(default_factory=AbsentJournal)

    async def write(self, body: "Callable[[Transaction], Awaitable[T]]") -> T:
        """Do all that ``body`` does, or nothing of it, within this write."""
        return await self.writer.write(body)

    def after_commit(self, hook: Hook) -> bool:
        """Run ``hook`` once after the outermost write has committed; False where this one is over."""
        return self.writer.after_commit(hook)


class AbsentWriter(Writer):
    """The writer of a driver that has none: single operations are all it keeps whole."""

    @override
    async def write(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        raise WriterError("unsupported", "write", "this driver cannot put several operations in one transaction")

    @override
    def after_commit(self, hook: Hook) -> bool:
        return False

    @override
    def on_retry(self, listener: Hook) -> None:
        """Nothing is ever repeated here."""
