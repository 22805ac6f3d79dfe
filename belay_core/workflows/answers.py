"""What a gate answers (kernel 19)."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Approved(Generic[T]):
    """Somebody approved; go on with this subject, which is what was shown or what the approver made of it."""

    subject: T
    by: str
    reason: str | None = None
    edited: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """Somebody refused."""

    by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Lapsed:
    """Nobody decided in time."""


@dataclass(frozen=True, slots=True)
class NotNeeded(Generic[T]):
    """The condition did not ask for anybody to look; go on with the subject."""

    subject: T
