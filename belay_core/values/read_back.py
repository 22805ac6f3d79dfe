"""Compares a value with what was read back for it: equal is not enough, every type inside is to be the same too."""

import dataclasses
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, cast


class _Pair(NamedTuple):
    path: str
    given: Any
    read_back: Any


def type_change(given: object, read_back: object) -> str | None:
    """Where two equal values differ in type and how, without a word of what they hold; None where they do not.

    An ``int`` where ``float`` is written counts as the same number, as it does for type checkers.
    """
    pending = [_Pair("", given, read_back)]
    while pending:
        pair = pending.pop()
        if type(pair.given) is not type(pair.read_back):
            if type(pair.given) is int and type(pair.read_back) is float:
                continue
            return f"{type(pair.given).__name__} at {pair.path or 'the top'} becomes {type(pair.read_back).__name__}"
        pending.extend(_inside(pair))
    return None


def _inside(pair: _Pair) -> Iterator[_Pair]:
    """The members of two values of one type; those of mappings are data and stay unnamed."""
    path, given, read_back = pair
    kind = cast("type[Any]", pair.given.__class__)
    if names := list(_fields(given)):
        # First, as a class with fields may be iterable in a way of its own.
        yield from (
            _Pair(f"{path}.{name}", getattr(given, name, None), getattr(read_back, name, None)) for name in names
        )
    elif issubclass(kind, Mapping):
        keys: dict[Any, Any] = {key: key for key in read_back}
        for key, member in given.items():
            if key in keys:
                yield _Pair(f"a key of {path or 'the top'}", key, keys[key])
                yield _Pair(f"{path}[...]", member, read_back[key])
    elif issubclass(kind, AbstractSet):
        same: dict[Any, Any] = {member: member for member in read_back}
        yield from (_Pair(f"{path}[...]", member, same[member]) for member in given if member in same)
    elif not issubclass(kind, str | bytes) and hasattr(given, "__iter__") and hasattr(given, "__len__"):
        for place, (one, other) in enumerate(zip(given, read_back, strict=False)):
            yield _Pair(f"{path}[{place}]", one, other)


def _fields(value: object) -> Iterator[str]:
    """The names of the fields of a dataclass, a ``NamedTuple`` or a pydantic model, undeclared ones included."""
    if dataclasses.is_dataclass(value):
        yield from (each.name for each in dataclasses.fields(value))
    else:
        yield from getattr(type(value), "_fields", ())
        yield from getattr(type(value), "model_fields", ())
        yield from getattr(value, "model_extra", None) or ()
