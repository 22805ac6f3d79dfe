"""What every chapter of the suite stands on."""

from collections.abc import AsyncGenerator
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from belay_core.stores.run_contract import Activated
from belay_testing.conformance.kit import Kit
from belay_testing.conformance.parts import PENDING, A, R
from belay_testing.harness import Gap, Harness, Tamper


class Chapter:
    """Promises of one kind, a test each. A suite inherits chapters and gives the fixture ``harness``."""

    pytestmark: ClassVar = [pytest.mark.asyncio, pytest.mark.belay_conformance]

    driver: ClassVar[str] = ""
    """The driver's name in reports; the name of the class where it has none."""
    gaps: ClassVar[tuple[Gap, ...]] = ()
    """What the driver does not keep."""
    most_histories: ClassVar[int | None] = None
    """How many histories the suite plays in lockstep at most, for drivers that are another one in disguise."""
    answering: ClassVar[frozenset[str]] = frozenset()
    """The stores, named as in ``Stores``, or their parts (``runs:contract``), whose every answer has to be seen."""

    @pytest_asyncio.fixture
    async def kit(self, harness: Harness) -> AsyncGenerator[Kit]:
        """A kit over stores that were just opened on an empty database."""
        async with harness.open() as stores:
            yield Kit(stores, harness.clock)

    @pytest.fixture
    def runs(self, kit: Kit) -> Any:
        """The run store at moment 0; of any type, since tests hand it what its types forbid."""
        kit.clock.set(0.0)
        return kit.stores.runs

    @pytest.fixture
    def stores(self, kit: Kit) -> Any:
        """All stores at moment 0; of any type, as ``runs``."""
        kit.clock.set(0.0)
        return kit.stores

    @pytest_asyncio.fixture
    async def attempts(self, runs: Any, kit: Kit) -> Any:
        """The attempt store at moment 0, beside the run ``R`` that ``A`` owns; of any type, as ``runs``."""
        await runs.create(R, "{}")
        assert await runs.claim_and_own(R, PENDING, A, 0) == Activated()
        return kit.stores.attempts

    @pytest.fixture
    def tamper(self, kit: Kit, harness: Harness) -> Tamper:
        """The way behind the stores of the kit."""
        del kit  # there is no way behind stores that are not open
        return harness.tamper
