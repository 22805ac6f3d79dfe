"""Jitter that is always the same."""

from belay_core.jitter import Jitter


class FixedJitter(Jitter):
    """Always draws the same number."""

    def __init__(self, number: float = 0.5) -> None:
        self._number = number

    def draw(self) -> float:
        """The number given to the constructor."""
        return self._number
