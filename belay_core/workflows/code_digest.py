"""A digest of a body's code: a replay compares it with that of the code that made the records."""

import hashlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final, cast

_LENGTH: Final = 8


def code_digest(fn: Callable[..., Any]) -> str:
    """Eight hex digits over the code of a function and of the functions of its module that it names.

    It changes with their bytecode, and so with the version of Python; not with comments, line numbers, steps or the
    values of other names.
    """
    digest = hashlib.sha256()
    for part in _parts(fn, set()):
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()[:_LENGTH]


def _parts(fn: Callable[..., Any], seen: set[object]) -> Iterator[str]:
    wrapped = getattr(fn, "__wrapped__", None)
    if callable(wrapped):
        yield from _parts(wrapped, seen)
    if not isinstance(fn, FunctionType) or fn in seen:
        return
    seen.add(fn)
    for code in _codes(fn.__code__):
        yield code.co_code.hex()
        yield from map(_constant, code.co_consts)
        yield from (*code.co_names, *code.co_varnames, *code.co_freevars)
        for name in code.co_names:
            named = fn.__globals__.get(name)
            if isinstance(named, FunctionType) and named.__module__ == fn.__module__:
                yield from _parts(named, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return value.co_name
    if isinstance(value, tuple):
        return f"({','.join(map(_constant, cast('tuple[object, ...]', value)))})"
    if isinstance(value, frozenset):
        # The order of a frozenset differs between processes.
        return f"{{{','.join(sorted(map(_constant, cast('frozenset[object]', value))))}}}"
    return f"{type(value).__name__}:{value!r}"
