"""Two bundles of stores that get the same calls and have to return equal outcomes."""

from collections.abc import Sequence
from typing import Any

from belay_core.errors import StoreError
from belay_core.stores import Stores
from belay_testing.clock import ManualClock
from belay_testing.conformance.kit import STORE_OF


class Twins:
    """Two bundles of stores, each with its own clock, given the same calls."""

    def __init__(self, stores: Sequence[Stores], clocks: Sequence[ManualClock]) -> None:
        self.stores = stores
        self._clocks = clocks
        self.answered: set[str] = set()
        """Operations and the classes of their outcomes: ``claim Claimed``."""

    @property
    def now(self) -> int:
        """The time of both clocks."""
        return int(self._clocks[0].now())

    def advance(self, by: float) -> None:
        """Move both clocks on by so many milliseconds."""
        for clock in self._clocks:
            clock.advance(by)

    async def runs(self, operation: str, *given: Any) -> Any:
        """The outcome of both run stores; a call that raises gives its error as the outcome."""
        return await self._both("runs", operation, *given)

    async def attempts(self, operation: str, *given: Any) -> Any:
        """The outcome of both attempt stores."""
        return await self._both("attempts", operation, *given)

    async def approvals(self, operation: str, *given: Any) -> Any:
        """The outcome of both approval stores."""
        return await self._both("approvals", operation, *given)

    async def command(self, command: Any) -> Any:
        """The outcome of both for a command of the engine."""
        name = type(command).__name__.lower()
        return await self._both(STORE_OF[name], name, command)

    async def waiting(self, operation: str, *given: Any) -> Any:
        """The outcome of both waiting stores."""
        return await self._both("waiting", operation, *given)

    async def journal(self, operation: str, *given: Any) -> Any:
        """The outcome of both journals."""
        return await self._both("journal", operation, *given)

    async def changes(self, operation: str, *given: Any) -> Any:
        """The outcome of both change feeds; only for one that holds no position of a feed."""
        return await self._both("changes", operation, *given)

    async def retention(self, operation: str, *given: Any) -> Any:
        """The outcome of both for a deletion."""
        return await self._both("retention", operation, *given)

    async def _both(self, store: str, operation: str, *given: Any) -> Any:
        one, other = [await _answer(getattr(getattr(each, store), operation), *given) for each in self.stores]
        self.answered.add(f"{operation} {type(one).__name__}")
        # Compared by repr as well: to Python 1, 1.0 and True are equal.
        assert (one, repr(one)) == (other, repr(other)), (operation, given)
        return one


async def _answer(operation: Any, *given: Any) -> Any:
    try:
        return await operation(*given)
    except StoreError as error:
        # The text of a database's own error differs.
        cause = {name: reported for name, reported in (error.cause or {}).items() if name != "cause"}
        return (type(error), str(error), cause)
