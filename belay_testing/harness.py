"""What a driver's author gives to the conformance suite: how to open stores, and the promises that are not kept."""

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
        """The stores, with this clock and this source of ids."""
        ...


class Tamper(Protocol):
    """Changes the database behind stores that keep belay's own tables in SQL."""

    @abstractmethod
    async def run(self, *statements: str) -> None:
        """Run statements in one transaction, without the checks of the store.

        Raises ``DatabaseError`` if the database refuses one.
        """

    @abstractmethod
    async def read(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    @abstractmethod
    async def loosen(self, table: str) -> None:
        """Remove the checks of a table, so that damaged rows can be stored."""

    @abstractmethod
    async def drop(self, table: str) -> None:
        """Drop a table, and what depends on it."""

    @abstractmethod
    async def ignore(self, column: str) -> None:
        """Make the database ignore updates of this column of ``belay_runs``, without an error."""

    @abstractmethod
    async def refuse(self, column: str, run_id: str | None = None) -> None:
        """Make updates of this column of ``belay_runs`` (of one run, if named) fail like a constraint violation."""

    @abstractmethod
    async def allow(self) -> None:
        """Undo ``ignore`` and ``refuse``."""

    @abstractmethod
    def sent(self) -> AbstractContextManager[list[str]]:
        """A list of the statements sent until the block is left; begin and commit are left out."""


class Harness:
    """One database of one kind, a new one for each test.

    Args:
        opener: Opens the stores. If several processes can share such a database, two openings stand for two
            processes.
        tamper: Makes the ``Tamper`` of stores that were just opened, for drivers with belay's own tables.
    """

    def __init__(self, opener: OpensHere, *, tamper: Callable[[Stores], Tamper] | None = None) -> None:
        self.clock = ManualClock()
        """The clock of every opening; only the test advances it."""
        self.ids = SequentialIds()
        """The ids of every opening; they count up."""
        self.answers: Answers = set()
        """Every outcome of any opening."""
        self._opener = opener
        self._tamper = tamper
        self._opened: list[Stores] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Stores]:
        """The stores, until the block is left; their outcomes are recorded."""
        async with self._opener(clock=self.clock, ids=self.ids) as stores:
            self._opened.append(stores)
            try:
                yield recording(stores, self.answers)
            finally:
                self._opened.remove(stores)

    @property
    def tamper(self) -> Tamper:
        """The ``Tamper`` of the stores opened first; raises ``LookupError`` if the harness was made without one."""
        if self._tamper is None:
            raise LookupError("tamper: this harness was made without one")
        return self._tamper(self._opened[0])


@dataclass(frozen=True, slots=True)
class Gap:
    """A promise of the contract that a driver does not keep, and why.

    ``test`` names the test of the promise, with its parameters in brackets where only some of them fail. It has to
    fail: a gap whose test passes is an error, and so is one that names no test.
    """

    test: str
    because: str
    """The reason, shown in the report."""
