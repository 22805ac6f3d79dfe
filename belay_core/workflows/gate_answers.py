"""What a gate answers (kernel 19)."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Approved(Generic[T]):
    """Somebody approved; go on with this subject, which is what was shown or what the approver made of it."""

    subject: T
    """What the run goes on with."""
    by: str
    """Who approved."""
    reason: str | None = None
    """Why, in their words."""
    edited: bool = False
    """Whether the approver changed the subject."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Somebody refused."""

    by: str
    """Who refused."""
    reason: str | None = None
    """Why, in their words."""


@dataclass(frozen=True, slots=True)
class Lapsed:
    """Nobody decided in time."""


@dataclass(frozen=True, slots=True)
class NotNeeded(Generic[T]):
    """The condition did not ask for anybody to look; go on with the subject."""

    subject: T
    """What the run goes on with."""
