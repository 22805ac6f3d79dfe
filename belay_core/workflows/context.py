"""The context of a workflow's body: every durable call goes through it (kernel 13 to 19)."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast, overload

from belay_core.errors import DefinitionError, InvalidInput
from belay_core.workflows.backend import ContextBackend, Question
from belay_core.workflows.branches import Branches, takes_context
from belay_core.workflows.gate_answers import Approved, Lapsed, NotNeeded, Rejected
from belay_core.workflows.names import admitted_span, checked_name
from belay_core.workflows.scope import Scope
from belay_core.workflows.step import Step, as_step

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
I = TypeVar("I")  # noqa: E741  (an item)


class Context:
    """Durable calls of one scope of one run.

    A call gets its key when it is made, not when it is awaited, so ``asyncio.create_task(ctx.step(f, x))`` and
    ``asyncio.gather`` over calls are equivalent to a plain ``await``. A context belongs to one task.
    """

    def __init__(self, backend: ContextBackend, scope: Scope) -> None:
        self._backend = backend
        self._scope = scope

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._backend.run_id

    def now(self) -> datetime:
        """The time at which the scope's last result was recorded, in UTC: the same on every replay."""
        return datetime.fromtimestamp(self._scope.now / 1000, UTC)

    @property
    def random(self) -> random.Random:
        """A generator that draws the same numbers on every replay."""
        return self._scope.random

    @overload
    def step(self, fn: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(
        self, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    def step(self, fn: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Execute a step once and record its result; a replay returns the recorded result.

        Arguments and result have to be data. Raises ``StepFailed`` once its tries are used up, fresh and resumed
        alike.
        """
        step = cast("Step[..., Any]", fn) if type(fn) is Step else as_step(fn)
        return self._backend.step(self._scope, step, (args, kwargs))

    def keyed_step(self, step: Step[..., R], invoke: Callable[[str], Any]) -> Coroutine[Any, Any, R]:
        """A step of the class form, whose function gets its key and has no arguments of its own."""
        return self._backend.step(self._scope, step, invoke)

    @overload
    def gate(self, name: str, *, subject: S, of: Any = ...) -> Coroutine[Any, Any, Approved[S] | Rejected]: ...
    @overload
    def gate(
        self, name: str, *, subject: S, of: Any = ..., lapse_after: timedelta
    ) -> Coroutine[Any, Any, Approved[S] | Rejected | Lapsed]: ...
    @overload
    def gate(
        self, name: str, *, subject: S, of: Any = ..., when: Callable[[S], bool]
    ) -> Coroutine[Any, Any, Approved[S] | Rejected | NotNeeded[S]]: ...
    @overload
    def gate(
        self, name: str, *, subject: S, of: Any = ..., lapse_after: timedelta, when: Callable[[S], bool]
    ) -> Coroutine[Any, Any, Approved[S] | Rejected | Lapsed | NotNeeded[S]]: ...
    def gate(
        self,
        name: str,
        *,
        subject: Any,
        of: Any = None,
        lapse_after: timedelta | None = None,
        when: Callable[[Any], bool] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Ask a person, and wait for the decision however long it takes.

        ``subject`` is what is shown and decided upon; continue with the subject of the answer, which the approver may
        have changed; ``of`` is its type, if that does not follow from the value. ``lapse_after`` bounds the wait.
        ``when`` is evaluated once, and if it is false no decision is needed. Raises ``InvalidInput`` for a name or a
        duration that breaks its rule, and ``DefinitionError`` for a ``when`` that cannot be called.
        """
        checked_name("name", name, key_part=True)
        if lapse_after is not None:
            admitted_span("lapse_after", lapse_after, positive=True)
        if when is not None and not callable(when):
            raise DefinitionError("when: must be something that can be called with the subject")
        needed = None if when is None else _condition(when, subject)
        return self._backend.gate(self._scope, Question(name, subject, of, lapse_after, needed))

    def sleep(self, duration: timedelta) -> Coroutine[Any, Any, None]:
        """Wait for a duration that crashes and restarts do not lengthen. Raises ``InvalidInput``."""
        return self._backend.sleep(self._scope, admitted_span("duration", duration))

    @overload
    def map(
        self,
        body: "Callable[[Context, I], Coroutine[Any, Any, R]]",
        items: Iterable[I],
        /,
        *,
        limit: int | None = None,
        name: str | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def map(
        self,
        body: Step[[I], R] | Callable[[I], Coroutine[Any, Any, R]],
        items: Iterable[I],
        /,
        *,
        limit: int | None = None,
        name: str | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def map(
        self, body: Callable[[I], R], items: Iterable[I], /, *, limit: int | None = None, name: str | None = None
    ) -> Coroutine[Any, Any, list[R]]: ...
    def map(
        self, body: Any, items: Iterable[Any], /, *, limit: int | None = None, name: str | None = None
    ) -> Coroutine[Any, Any, list[Any]]:
        """Run a body for each item concurrently, at most ``limit`` at a time; results in the order of the items.

        ``body`` is a step of one argument, or a function ``(ctx, item)`` whose context is the item's own. Every
        branch ends; then the error of the lowest item is raised. Raises ``InvalidInput`` for a ``limit`` below 1, and
        ``DefinitionError`` for a body that takes anything else or has no name.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidInput("limit", "must be a whole number of at least 1")
        step: Any = None if takes_context(body) else as_step(body)
        each: Any = body if step is None else partial(_call_step, step)
        label: Any = body if step is None else self._backend.name_of(self._scope, step)
        branches = [partial(_with_item, each, item) for item in items]
        together = self._branches(_label(name, label), branches)
        return self._backend.made(together.path, together.run(self._child_context, limit))

    @overload
    def gather(self, first: "Callable[[Context], Awaitable[R]]", /) -> Coroutine[Any, Any, tuple[R]]: ...
    @overload
    def gather(
        self, first: "Callable[[Context], Awaitable[R]]", second: "Callable[[Context], Awaitable[S]]", /
    ) -> Coroutine[Any, Any, tuple[R, S]]: ...
    @overload
    def gather(
        self,
        first: "Callable[[Context], Awaitable[R]]",
        second: "Callable[[Context], Awaitable[S]]",
        third: "Callable[[Context], Awaitable[I]]",
        /,
    ) -> Coroutine[Any, Any, tuple[R, S, I]]: ...
    @overload
    def gather(self, *bodies: "Callable[[Context], Awaitable[R]]") -> Coroutine[Any, Any, tuple[R, ...]]: ...
    def gather(self, *bodies: Any) -> Coroutine[Any, Any, tuple[Any, ...]]:
        """Run bodies concurrently, each with its own context; returns their results in order.

        Every body ends; then the error of the first in the order is raised. Raises ``DefinitionError`` for anything
        that cannot be called.
        """
        if not all(callable(body) for body in bodies):
            raise DefinitionError("gather: it takes functions of a context; calls go side by side by asyncio.gather")
        together = self._branches("gather", bodies)

        async def as_tuple() -> tuple[Any, ...]:
            return tuple(await together.run(self._child_context, None))

        return self._backend.made(together.path, as_tuple())

    def branch(self, name: str) -> "Context":
        """A context for a task of your own; the first task that calls through it owns it. Raises ``InvalidInput``."""
        path = self._scope.key(checked_name("name", name, key_part=True))
        return Context(self._backend, self._backend.open_scope(self._scope, f"{path}/"))

    def _branches(self, name: str, bodies: Sequence[Callable[["Context"], Awaitable[Any]]]) -> Branches:
        return Branches(self._backend, self._scope, self._scope.key(name), bodies)

    def _child_context(self, scope: Scope) -> "Context":
        return Context(self._backend, scope)


async def _call_step(step: Step[..., Any], ctx: "Context", item: Any) -> Any:
    return await ctx.step(step, item)


def _with_item(body: "Callable[[Context, Any], Awaitable[Any]]", item: Any, ctx: "Context") -> Awaitable[Any]:
    return body(ctx, item)


def _condition(when: Callable[[Any], Any], subject: object) -> Callable[[], Awaitable[bool]]:
    async def needed() -> bool:
        verdict = when(subject)
        return bool(await verdict if asyncio.iscoroutine(verdict) else verdict)

    return needed


def _label(name: str | None, fallback: Any) -> str:
    if name is not None:
        return checked_name("name", name, key_part=True)
    own = fallback if isinstance(fallback, str) else getattr(fallback, "__name__", None)
    if own is None:
        raise DefinitionError("map: a body without a name of its own needs name=")
    return checked_name("name", own, key_part=True)
