"""Luck that is always the same."""

from belay_core.jitter import Jitter


class FixedJitter(Jitter):
    """Draws one number for ever."""

    def __init__(self, number: float = 0.5) -> None:
        self._number = number

    def draw(self) -> float:
        """The number it was made with."""
        return self._number
