"""The base class of every chapter of the suite."""

from collections.abc import AsyncGenerator
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from belay_core.stores.run_contract import Activated
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import PENDING, A, R
from belay_testing.harness import Gap, Harness, Tamper


class Chapter:
    """Promises of one kind, one test each. A suite inherits chapters and provides the fixture ``harness``."""

    pytestmark: ClassVar = [pytest.mark.asyncio, pytest.mark.belay_conformance]

    driver: ClassVar[str] = ""
    """The driver's name in reports; the name of the class where it has none."""
    gaps: ClassVar[tuple[Gap, ...]] = ()
    """The promises that the driver does not keep."""
    most_histories: ClassVar[int | None] = None
    """At most so many histories run in lockstep, for a driver that only wraps another one."""
    answering: ClassVar[frozenset[str]] = frozenset()
    """The stores, named as in ``Stores``, or their parts (``runs:contract``), whose every outcome has to occur."""

    @pytest_asyncio.fixture
    async def kit(self, harness: Harness) -> AsyncGenerator[Kit]:
        """A kit over stores that were just opened on an empty database."""
        async with harness.open() as stores:
            yield Kit(stores, harness.clock)

    @pytest.fixture
    def runs(self, kit: Kit) -> Any:
        """The run store at time 0; typed ``Any``, since tests pass what its types forbid."""
        kit.clock.set(0.0)
        return kit.stores.runs

    @pytest.fixture
    def stores(self, kit: Kit) -> Any:
        """All stores at time 0; typed ``Any``, as ``runs``."""
        kit.clock.set(0.0)
        return kit.stores

    @pytest_asyncio.fixture
    async def attempts(self, runs: Any, kit: Kit) -> Any:
        """The attempt store at time 0, with the run ``R`` that ``A`` owns; typed ``Any``, as ``runs``."""
        await runs.create(R, "{}")
        assert await runs.claim_and_own(R, PENDING, A, 0) == Activated()
        return kit.stores.attempts

    @pytest.fixture
    def tamper(self, kit: Kit, harness: Harness) -> Tamper:
        """Access to the database behind the stores of the kit."""
        del kit  # only open stores have a database behind them
        return harness.tamper
