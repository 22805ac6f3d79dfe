"""What a context asks of the engine behind it."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, TypeVar

from belay_core.workflows.scope import Scope
from belay_core.workflows.step import Step

T = TypeVar("T")

Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
"""What a step's function is called with, by position and by name."""
Invoke: TypeAlias = Callable[[str], Any]
"""Calls a step's function, given the step key: where it has no arguments of its own."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a gate is about to ask: ``needed`` is false where nobody has to look."""

    gate: str
    subject: object
    of: Any
    lapse_after: timedelta | None
    needed: Callable[[], Awaitable[bool]] | None


class ContextBackend(Protocol):
    """One drain of one run; every call is keyed when it is made, and works once it is awaited."""

    @property
    @abstractmethod
    def run_id(self) -> str:
        """The id of the run."""

    @abstractmethod
    def step(self, scope: Scope, step: Step[..., Any], given: Arguments | Invoke) -> Coroutine[Any, Any, Any]:
        """A step whose function is called with these arguments, or by this function."""

    @abstractmethod
    def gate(self, scope: Scope, question: Question) -> Coroutine[Any, Any, Any]:
        """A gate."""

    @abstractmethod
    def sleep(self, scope: Scope, duration: timedelta) -> Coroutine[Any, Any, None]:
        """A durable sleep."""

    @abstractmethod
    def made(self, key: str, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The call, remembered until it is awaited: where the play ends before, nobody has forgotten it."""

    @abstractmethod
    def awaited(self, key: str) -> None:
        """A call that was made is awaited."""

    @abstractmethod
    def open_scope(self, parent: Scope, path: str) -> Scope:
        """A scope below another, busy from now on until its task ends; the first task to call owns it."""

    @abstractmethod
    def close_scope(self, scope: Scope) -> None:
        """The scope's task is about to end."""

    @abstractmethod
    def join(self, scope: Scope) -> Callable[[], None]:
        """The scope's own task does nothing but wait for scopes below it, until the returned function is called."""
