"""Jitter: the only module that draws random numbers."""

import random
from abc import abstractmethod
from typing import Protocol


class Jitter(Protocol):
    """Draws random numbers that change delays and never a result."""

    @abstractmethod
    def draw(self) -> float:
        """A number from 0 up to, not including, 1."""


class SystemJitter(Jitter):
    """The interpreter's generator."""

    def draw(self) -> float:
        """The next number of the shared generator."""
        return random.random()


def seeded(seed: str) -> random.Random:
    """A generator that draws the same numbers for the same seed, in every process."""
    return random.Random(seed)
