"""The outcomes that stores returned, and those they can return: an outcome class that never occurred is unproven."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from types import UnionType
from typing import Any, Final, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from belay_core.stores import AttemptContract, RunContract, Stores
from belay_core.stores.attempts import AttemptCommands
from belay_core.stores.runs import RunCommands

Answer: TypeAlias = tuple[str, str]
"""An operation (``runs.claim``) and the class of its outcome; for a boolean, ``True`` or ``False``."""
Answers: TypeAlias = set[Answer]
"""Outcomes that occurred; ``recording`` adds to it."""

_OUTCOMES: Final = "belay_core.stores."
_MAKES_ANOTHER: Final = "make_with"


_PARTS: Final[Mapping[str, type]] = {
    "runs:contract": RunContract,
    "runs:engine": RunCommands,
    "attempts:contract": AttemptContract,
    "attempts:engine": AttemptCommands,
}
"""The parts of stores that a driver may implement alone."""


@cache
def possible(part: str) -> frozenset[Answer]:
    """Every outcome of every operation of a store, named as in ``Stores``, or of a part of it (``runs:contract``).

    Records and None are not outcomes.
    """
    store, protocol = part.partition(":")[0], _PARTS.get(part)
    return frozenset(
        (f"{store}.{operation}", kind)
        for operation, kinds in _operations(protocol or _protocol_of(part)).items()
        for kind in kinds
    )


def recording(stores: Stores, seen: Answers) -> Stores:
    """The same stores; the class of each outcome is added to ``seen``."""
    watched = {
        field.name: _Recording(getattr(stores, field.name), field.name, operations, seen)
        for field in fields(Stores)
        if (operations := _operations(_protocol_of(field.name)))
    }
    return replace(stores, **cast("dict[str, Any]", watched))


class _Recording:
    """A wrapper of a store that records its outcomes."""

    def __init__(self, store: Any, name: str, operations: Mapping[str, frozenset[str]], seen: Answers) -> None:
        self._recorded = store
        self._name = name
        self._operations = operations
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._recorded, name)
        if name == _MAKES_ANOTHER:
            return self._derived(found)
        kinds = self._operations.get(name)
        return found if kinds is None else self._wrap(name, found, kinds)

    def _derived(self, make: Callable[..., Any]) -> Callable[..., "_Recording"]:
        def made(*given: Any) -> _Recording:
            return _Recording(make(*given), self._name, self._operations, self._seen)

        return made

    def _wrap(self, name: str, operation: Callable[..., Awaitable[Any]], kinds: frozenset[str]) -> Any:
        async def noted(*given: Any, **named: Any) -> Any:
            answer: Any = await operation(*given, **named)
            self._seen |= {(f"{self._name}.{name}", kind) for kind in _outcome_name(answer) & kinds}
            return answer

        return noted


def _outcome_name(answer: object) -> set[str]:
    each = cast("tuple[object, ...]", answer) if isinstance(answer, tuple) else (answer,)
    return {str(one) if isinstance(one, bool) else type(one).__name__ for one in each}


@cache
def _protocol_of(store: str) -> type:
    found: object = get_type_hints(Stores)[store]
    return found if isinstance(found, type) else object


@cache
def _operations(protocol: type) -> Mapping[str, frozenset[str]]:
    """The operations of a store that return outcomes, and the names of those outcomes."""
    found = {
        name: frozenset(_classes(inspect.signature(method).return_annotation))
        for name, method in inspect.getmembers(protocol, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    return {name: kinds for name, kinds in found.items() if kinds}


def _classes(hint: Any) -> Iterable[str]:
    if get_origin(hint) in {Union, UnionType, tuple}:
        for inner in get_args(hint):
            yield from _classes(inner)
    elif hint is bool:
        yield from ("True", "False")
    elif isinstance(hint, type) and hint.__module__.startswith(_OUTCOMES):
        yield hint.__name__
