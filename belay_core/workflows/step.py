"""Steps: named functions whose results are recorded, so that a replay does not execute them again."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)

from belay_core.errors import DefinitionError, InvalidInput
from belay_core.values.codecs import Codec, Untyped, codec_for
from belay_core.workflows.names import admitted_span, checked_name, with_options

P = ParamSpec("P")
R = TypeVar("R")

_MAXIMUM_RETRIES = 1_000
_RULES = ("name", "retries", "idempotent", "timeout", "backoff", "kind", "of")


class Step(Generic[P, R]):
    """A function with a name and the rules of its execution.

    ``fn`` is the function itself, for unit tests. ``retries`` counts further tries after the first; ``timeout`` cuts
    an async function; ``backoff`` is the wait before the first retry, doubled before each further one. ``kind`` and
    ``options`` are kept for readers and change nothing. ``of`` is the type of the result, if the annotation does not
    have it. Raises ``DefinitionError`` for a rule that is broken, and ``InvalidInput`` for such a name.
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
        kind: str | None = None,
        of: Any = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        if not callable(fn):
            raise DefinitionError("step: a step needs a function")
        self.fn: Callable[P, Any] = fn
        self.name = checked_name("name", _own_name(fn) if name is None else name, key_part=True)
        """The name under which results are recorded; the function's, unless given."""
        self.retries = _whole("retries", retries, _MAXIMUM_RETRIES)
        self.idempotent = _flag("idempotent", idempotent)
        """Whether it may be executed again when its end is unknown."""
        self.is_async = _is_async(fn)
        """Whether the function is a coroutine function; others run in threads."""
        self.timeout = _span("timeout", timeout) if timeout is not None else None
        if timeout is not None and not self.is_async:
            raise DefinitionError(f"step {self.name}: timeout needs an async function; a thread cannot be cut")
        self.backoff = _span("backoff", backoff)
        self.kind = _label("kind", kind)
        self.options: Mapping[str, object] = MappingProxyType(dict(options or {}))
        self._of = of

    @functools.cached_property
    def codec(self) -> Codec[R]:
        """The codec of results: of ``of``, else of the function's return annotation, else plain JSON."""
        return codec_for(self._result_annotation())

    def named(self, name: str) -> "Step[P, R]":
        """The same step under another name."""
        return Step(
            self.fn,
            name=name,
            retries=self.retries,
            idempotent=self.idempotent,
            timeout=self.timeout,
            backoff=self.backoff,
            kind=self.kind,
            of=self._of,
            options=self.options,
        )

    def _result_annotation(self) -> Any:
        if self._of is not None:
            return self._of
        try:
            return get_type_hints(_unwrapped(self.fn), include_extras=True).get("return", Untyped)
        except (NameError, TypeError, AttributeError):
            raise DefinitionError(
                f"step {self.name}: its return annotation cannot be read; give of=, or import the type it names"
            ) from None

    if not TYPE_CHECKING:

        def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
            """Refuse: a bare call would not be recorded. Raises ``DefinitionError``."""
            raise DefinitionError(f"step {self.name}: call it as ctx.step({self.name}, ...), or .fn(...) in a test")

    def __set_name__(self, _owner: type, name: str) -> None:
        self.attribute = name

    def __get__(self, _instance: object, _owner: type | None = None) -> Self:
        return self


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
    kind: str | None = None,
    of: Any = None,
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


def _unwrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else type(fn).__call__


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(_unwrapped(fn))


def _own_name(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", "<none>")
    if name.startswith("<") or isinstance(fn, functools.partial):
        raise DefinitionError('step: lambdas and partials have no name of their own; use step(name="...")(fn)')
    return str(name)


def _whole(parameter: str, value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise DefinitionError(f"{parameter}: must be a whole number from 0 to {most}")
    return value


def _flag(parameter: str, value: object) -> bool:
    if type(value) is not bool:
        raise DefinitionError(f"{parameter}: must be True or False")
    return value


def _label(parameter: str, value: object) -> str | None:
    if value is not None and type(value) is not str:
        raise DefinitionError(f"{parameter}: must be text")
    return value


def _span(parameter: str, value: object) -> timedelta:
    try:
        return admitted_span(parameter, value, positive=True)
    except InvalidInput as refused:
        raise DefinitionError(str(refused)) from None
