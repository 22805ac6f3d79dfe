"""Steps: named functions whose results are recorded, so that a replay does not execute them again."""

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from types import MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar, cast, overload

from belay_core.errors import DefinitionError
from belay_core.values.codecs import Codec, Untyped, codec_for
from belay_core.workflows import functions
from belay_core.workflows.names import checked_name, with_options
from belay_core.workflows.retry_rules import Selection, retry_rules, span

P = ParamSpec("P")
R = TypeVar("R")

_RULES = (
    "name",
    "retries",
    "idempotent",
    "timeout",
    "backoff",
    "max_backoff",
    "jitter",
    "retry_on",
    "no_retry_on",
    "kind",
    "of",
    "was",
)


class DeclaresSteps:
    """Base of classes whose methods are the steps of a workflow: there a step stays what was declared."""


class Step(Generic[P, R]):
    """A function with a name and the rules of its execution.

    ``fn`` is the function itself, for unit tests. ``retries`` counts further tries after the first; ``timeout`` cuts
    an async function. ``backoff`` is the wait before the first retry, doubled before each further one up to
    ``max_backoff`` (an hour, unless given), and shortened by up to a half unless ``jitter`` is False. ``retry_on``
    and ``no_retry_on`` choose the errors that are tried again, by exception types or a predicate; without them all are
    but ``PermissionError``, ``DefinitionError`` and ``Fail``. A step that is not idempotent is retried only after an
    exception of its own function: cut by its ``timeout``, it goes to review. ``kind`` and ``options`` are kept for
    readers and change nothing. ``of`` is the type of the result, if the annotation does not have it. ``was`` is a
    former name, or several: an open run that has recorded the step under it goes on with that record. Raises
    ``DefinitionError`` for a rule that is broken, and ``InvalidInput`` for such a name.
    """

    def __init__(  # noqa: PLR0913  (each is a rule of its own, given by name)
        self,
        fn: Callable[P, object],
        *,
        name: str | None = None,
        retries: int = 0,
        idempotent: bool = False,
        timeout: timedelta | None = None,
        backoff: timedelta = timedelta(seconds=1),
        max_backoff: timedelta | None = None,
        jitter: bool = True,
        retry_on: Selection | None = None,
        no_retry_on: Selection | None = None,
        kind: str | None = None,
        of: Any = None,
        was: str | tuple[str, ...] = (),
        options: Mapping[str, object] | None = None,
    ) -> None:
        if getattr(fn, "is_workflow", False) is True:
            raise DefinitionError("step: a workflow is no step; start it with client.start, or call its steps here")
        if not callable(fn):
            raise DefinitionError(f"step: a step needs a function, not a value of type {type(fn).__name__}")
        self.fn: Callable[P, Any] = fn
        self.name = checked_name("name", functions.own_name(fn) if name is None else name, key_part=True)
        """The name under which results are recorded; the function's, unless given."""
        functions.refuse_generator(f"step {self.name}", fn)
        self.retry = retry_rules(retries, backoff, max_backoff, jitter, retry_on, no_retry_on)
        """When a failed attempt is followed by another one."""
        self.idempotent = _flag("idempotent", idempotent)
        """Whether it may be executed again when its end is unknown."""
        self.is_async = functions.is_async(fn)
        """Whether the function is a coroutine function; others run in threads."""
        self.timeout = span("timeout", timeout) if timeout is not None else None
        if timeout is not None and not self.is_async:
            raise DefinitionError(f"step {self.name}: timeout needs an async function; a thread cannot be cut")
        self.kind = _label("kind", kind)
        self.options: Mapping[str, object] = MappingProxyType(dict(options or {}))
        self._of = of
        self.was = _former_names(self.name, was)
        """Former names, under which open runs may have recorded it."""

    @functools.cached_property
    def codec(self) -> Codec[R]:
        """The codec of results: of ``of``, else of the function's return annotation, else plain JSON."""
        return codec_for(self._result_annotation())

    @functools.cached_property
    def positions(self) -> functions.Positions | None:
        """How many arguments the function takes by position, where that alone decides whether a call fits."""
        return functions.positions(self.fn)

    def check_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise ``DefinitionError`` where the function cannot be called so: before the step begins."""
        if why := functions.wrong_call(self.fn, args, kwargs):
            raise DefinitionError(f"step {self.name}: cannot be called so: {why}")

    def named(self, name: str) -> "Step[P, R]":
        """The same step under another name."""
        made = copy.copy(self)
        made.name = checked_name("name", name, key_part=True)
        return made

    def _result_annotation(self) -> Any:
        if self._of is not None:
            return self._of
        found = functions.annotation(f"step {self.name}", self.fn, "return")
        return Untyped if found is functions.MISSING else found

    if not TYPE_CHECKING:

        def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
            """Refuse: a bare call would not be recorded. Raises ``DefinitionError``."""
            raise DefinitionError(f"step {self.name}: call it as ctx.step({self.name}, ...), or .fn(...) in a test")

    def __set_name__(self, _owner: type, name: str) -> None:
        self.attribute = name

    def __get__(self, instance: object, _owner: type | None = None) -> "Step[..., R]":
        """The step; of an instance of a plain class, the step whose function is the bound method."""
        if instance is None or isinstance(instance, DeclaresSteps):
            return self
        bound: Step[..., R] = copy.copy(self)
        bound.fn = MethodType(self.fn, instance)
        vars(bound).pop("positions", None)
        return bound


class StepDecorator(Protocol):
    """Turns a function into a step with the given rules."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retries: int = 0,
    idempotent: bool = False,
    timeout: timedelta | None = None,
    backoff: timedelta = ...,
    max_backoff: timedelta | None = None,
    jitter: bool = True,
    retry_on: Selection | None = None,
    no_retry_on: Selection | None = None,
    kind: str | None = None,
    of: Any = None,
    was: str | tuple[str, ...] = (),
    **options: object,
) -> StepDecorator: ...
def step(fn: Callable[..., Any] | None = None, /, **rules: Any) -> Any:
    """Declare a step (see ``Step`` for the rules), as ``@step`` or ``@step(retries=3, idempotent=True)``.

    A step that is not idempotent is executed at most once per attempt: if its owner dies while it runs, it waits
    for an operator's resolution. An idempotent one is executed again.

    Other keywords are kept as options, and change nothing. Raises ``DefinitionError`` for one that is a misspelt
    rule, such as ``retry=3``.
    """
    given = with_options("step", rules, _RULES)
    if fn is not None:
        return _declared(given, fn)
    return functools.partial(_declared, given)


def _declared(rules: dict[str, Any], fn: Callable[..., Any]) -> Step[..., Any]:
    made: Step[..., Any] = Step(fn, **rules)
    return made


def as_step(fn: Any) -> Step[..., Any]:
    """A step unchanged; a plain function as a step with default rules."""
    if isinstance(fn, Step):
        return cast("Step[..., Any]", fn)
    kept: Step[..., Any] | None = getattr(fn, "__belay_step__", None)
    if kept is not None and kept.fn is fn:  # functools.wraps copies attributes of the wrapped function
        return kept
    made = _declared({}, fn)
    if inspect.isfunction(fn):
        vars(fn)["__belay_step__"] = made  # kept with the function, so that its hints are read once
    return made


def _flag(parameter: str, value: object) -> bool:
    if type(value) is not bool:
        raise DefinitionError(f"{parameter}: must be True or False")
    return value


def _former_names(name: str, given: object) -> tuple[str, ...]:
    names = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    former = tuple(checked_name("was", each, key_part=True) for each in names)
    if name in former:
        raise DefinitionError(f"was: must be a former name; {name} is the present one")
    return former


def _label(parameter: str, value: object) -> str | None:
    if value is not None and type(value) is not str:
        raise DefinitionError(f"{parameter}: must be text")
    return value
