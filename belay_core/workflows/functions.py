"""What is read of an author's function: its name, its kind, one annotation, and how it may be called."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, get_type_hints

from belay_core.errors import DefinitionError

MISSING: Final = object()
"""Stands for an annotation that was not written."""


class Positions(NamedTuple):
    """How many arguments a function takes by position alone."""

    least: int
    most: int


def own_name(fn: Callable[..., Any]) -> str:
    """The function's name. Raises ``DefinitionError`` for a lambda or a partial, which have none of their own."""
    name = getattr(fn, "__name__", "<none>")
    if name.startswith("<") or isinstance(fn, functools.partial):
        raise DefinitionError('step: lambdas and partials have no name of their own; use step(name="...")(fn)')
    return str(name)


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(_unwrapped(fn))


def refuse_generator(what: str, fn: Callable[..., Any]) -> None:
    """Raise ``DefinitionError`` for a generator function: calling it executes nothing, so nothing could be recorded."""
    inner = _unwrapped(fn)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise DefinitionError(f"{what}: is a generator function; return a list, or make each part a step of its own")


def annotation(what: str, fn: Callable[..., Any], name: str) -> Any:
    """The annotation of one parameter, or of ``return``; ``MISSING`` where none is written.

    Only this one is evaluated: another may name a type that is imported for a type checker alone. Raises
    ``DefinitionError`` where it cannot be evaluated.
    """
    inner = _unwrapped(fn)
    remedy = "import the type it names outside of TYPE_CHECKING, at the top of the module"
    try:
        written: dict[str, Any] = getattr(inner, "__annotations__", {})
        if name not in written:
            return MISSING
        one = SimpleNamespace(__annotations__={name: written[name]})
        found = inspect.unwrap(inner)
        return get_type_hints(one, getattr(found, "__globals__", {}), include_extras=True)[name]
    except (NameError, TypeError, AttributeError, SyntaxError):
        place = "its return annotation" if name == "return" else f"the annotation of {name}"
        raise DefinitionError(f"{what}: {place} cannot be read; {remedy}") from None


def positions(fn: Callable[..., Any]) -> Positions | None:
    """How many arguments it takes by position; None where a keyword is required, or its signature cannot be read."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return None
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters):
        return None
    open_ended = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    least = sum(each.default is each.empty for each in by_position)
    return Positions(least, 1_000_000 if open_ended else len(by_position))


def wrong_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Why the function cannot be called with these arguments, in Python's words; None where it can."""
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:
        return None
    return None


def _unwrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else type(fn).__call__
