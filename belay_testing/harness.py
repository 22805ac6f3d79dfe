"""What a driver's author hands to the conformance suite: how to open stores, and the promises that are not kept."""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from belay_core.clock import Clock
from belay_core.ids import IdSource
from belay_core.stores import Stores
from belay_testing.answers import Answers, recording
from belay_testing.clock import ManualClock
from belay_testing.ids import SequentialIds


class OpensHere(Protocol):
    """Opens stores over one database that was empty when the test began; every call opens that same database."""

    def __call__(self, *, clock: Clock | None, ids: IdSource | None) -> AbstractAsyncContextManager[Stores]:
        """The stores, which read this clock and take their names from these ids."""
        ...


class Tamper(Protocol):
    """Reaches behind stores that keep belay's own tables in SQL."""

    @abstractmethod
    async def run(self, *statements: str) -> None:
        """Run statements as an intruder would, in one transaction and past every check of the store.

        Raises ``DatabaseError`` where the database refuses one.
        """

    @abstractmethod
    async def read(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    @abstractmethod
    async def loosen(self, table: str) -> None:
        """Take the checks off a table, so that damage can be done to it."""

    @abstractmethod
    async def drop(self, table: str) -> None:
        """Take a table away, with whatever hangs on it."""

    @abstractmethod
    async def ignore(self, column: str) -> None:
        """Have updates of this column of ``belay_runs`` be ignored, without an error."""

    @abstractmethod
    async def refuse(self, column: str, run_id: str | None = None) -> None:
        """Have updates of this column of ``belay_runs`` (of one run, if named) fail as a broken constraint does."""

    @abstractmethod
    async def allow(self) -> None:
        """Undo ``ignore`` and ``refuse``."""

    @abstractmethod
    def sent(self) -> AbstractContextManager[list[str]]:
        """A list of the statements sent until the block is left; those around a transaction are left out."""


class Harness:
    """One database of one kind, made anew for each test.

    Args:
        opener: Opens the stores. Where several processes can share such a database, two openings are what two
            processes have.
        tamper: Makes the way behind stores that were just opened, for drivers with belay's own tables.
    """

    def __init__(self, opener: OpensHere, *, tamper: Callable[[Stores], Tamper] | None = None) -> None:
        self.clock = ManualClock()
        """The clock of every opening; it stands still until the test moves it."""
        self.ids = SequentialIds()
        """The names of every opening; they count up."""
        self.answers: Answers = set()
        """Every answer that any opening gave."""
        self._opener = opener
        self._tamper = tamper
        self._opened: list[Stores] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Stores]:
        """The stores, until the block is left; what they answer is recorded."""
        async with self._opener(clock=self.clock, ids=self.ids) as stores:
            self._opened.append(stores)
            try:
                yield recording(stores, self.answers)
            finally:
                self._opened.remove(stores)

    @property
    def tamper(self) -> Tamper:
        """The way behind the stores opened first; raises ``LookupError`` where the driver has none to offer."""
        if self._tamper is None:
            raise LookupError("tamper: this harness was made without one")
        return self._tamper(self._opened[0])


@dataclass(frozen=True, slots=True)
class Gap:
    """A promise of the contract that a driver does not keep, and why.

    ``test`` names the test of the promise, with its parameters in brackets where only some of them fail. It has to
    fail: a gap that has closed is an error, and so is one that names no test.
    """

    test: str
    because: str
    """The reason, for readers of the report."""
