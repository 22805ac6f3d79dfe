"""The bench, once for each test."""

from collections.abc import Iterator

import pytest

from belay_testing.clock import ManualClock
from tests.ownership.supervising import Bench


@pytest.fixture
def bench(belay_clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Iterator[Bench]:
    """A loop and its work, not begun yet."""
    with caplog.at_level("DEBUG"):
        yield Bench(belay_clock, caplog)
