"""The answers of a gate (kernel 19)."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Approved(Generic[T]):
    """The gate was approved; continue with this subject, which is the one shown or the approver's edit of it."""

    subject: T
    """The subject to continue with."""
    by: str
    """Who approved."""
    reason: str | None = None
    """The approver's reason."""
    edited: bool = False
    """Whether the approver changed the subject."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The gate was rejected."""

    by: str
    """Who rejected."""
    reason: str | None = None
    """The approver's reason."""


@dataclass(frozen=True, slots=True)
class Lapsed:
    """There was no decision in time."""


@dataclass(frozen=True, slots=True)
class NotNeeded(Generic[T]):
    """The condition was false, so no decision was needed; continue with the subject."""

    subject: T
    """The subject to continue with."""
