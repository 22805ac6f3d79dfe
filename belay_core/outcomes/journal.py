"""The answers of Journal."""

from dataclasses import dataclass
from typing import TypeAlias

from belay_core.outcomes.runs import FenceLost, NotFound


@dataclass(frozen=True, slots=True)
class Appended:
    """The event is the ``entry``-th of its run."""

    entry: int


AppendOutcome: TypeAlias = Appended | FenceLost | NotFound
"""The answers of ``Journal.append``."""
