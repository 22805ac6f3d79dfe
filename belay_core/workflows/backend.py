"""The engine's interface behind a context."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, TypeVar

from belay_core.workflows.scope import Scope
from belay_core.workflows.step import Step

T = TypeVar("T")

Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
"""The arguments of a step's function, by position and by name."""
Invoke: TypeAlias = Callable[[str], Any]
"""Calls a step's function with the step key, for a step without arguments of its own."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a gate: ``needed`` returns false if no decision is needed."""

    gate: str
    subject: object
    of: Any
    lapse_after: timedelta | None
    needed: Callable[[], Awaitable[bool]] | None


class ContextBackend(Protocol):
    """One execution of one run; every call gets its key when it is made, and starts once it is awaited."""

    @property
    @abstractmethod
    def run_id(self) -> str:
        """The id of the run."""

    @abstractmethod
    def step(self, scope: Scope, step: Step[..., Any], given: Arguments | Invoke) -> Coroutine[Any, Any, Any]:
        """A step whose function is called with these arguments, or by this function."""

    @abstractmethod
    def name_of(self, scope: Scope, step: Step[..., Any]) -> str:
        """The name under which the step's calls in this scope are recorded: its own, or a former one."""

    @abstractmethod
    def gate(self, scope: Scope, question: Question) -> Coroutine[Any, Any, Any]:
        """A gate."""

    @abstractmethod
    def sleep(self, scope: Scope, duration: timedelta) -> Coroutine[Any, Any, None]:
        """A durable sleep."""

    @abstractmethod
    def made(self, key: str, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The call, registered until it is awaited, so that the end of the execution closes it without a warning."""

    @abstractmethod
    def awaited(self, key: str) -> None:
        """Note that a call is awaited."""

    @abstractmethod
    def open_scope(self, parent: Scope, path: str) -> Scope:
        """A child scope, busy from now on until its task ends; the first task that calls through it owns it."""

    @abstractmethod
    def close_scope(self, scope: Scope) -> None:
        """The scope's task is about to end."""

    @abstractmethod
    def join(self, scope: Scope) -> Callable[[], None]:
        """Note that the scope's own task only waits for child scopes, until the returned function is called."""
