"""Digests that agree for equal values; what is hashed here is never stored (kernel 9)."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, Final, cast

from belay_core.errors import ValueRefused
from belay_core.values.extent import HOLDS_TOO_MANY, holds_too_many
from belay_core.values.json import parts_writer, writer

_SCALARS: Final = frozenset({str, int, float, bool, NoneType})
_written: Final = writer(ensure_ascii=True, sort_keys=True, allow_nan=True)
_parts: Final = parts_writer(ensure_ascii=True, sort_keys=True, allow_nan=True)


def text_digest(text: str) -> str:
    """SHA-256 over the UTF-8 of a stored text, in lower-case hex; decisions are bound to it."""
    return hashlib.sha256(text.encode()).hexdigest()


def value_digest(value: object) -> str:
    """SHA-256 of a value's sorted form: equal data, equal digest, in every process.

    Raises ``ValueRefused`` where the value is no data.
    """
    if holds_too_many(value):
        raise ValueRefused(f"a value of type {type(value).__name__} {HOLDS_TOO_MANY}")
    try:
        text = _text(_sorted_form(value))
    except RecursionError:
        text = None
    if text is None:
        raise ValueRefused(f"a value of type {type(value).__name__} is nested too deep or holds a number too large")
    return text_digest(text)


def arguments_digest(args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """The digest of a call's arguments. Raises ``ValueRefused`` where one of them is no data."""
    if not kwargs and _SCALARS.issuperset(map(type, args)):
        # They are their own sorted form.
        try:
            return hashlib.sha256("".join(_parts([args, kwargs], 0)).encode()).hexdigest()
        except ValueError:
            pass  # an integer of more digits than Python writes, or text that is not well-formed
    return value_digest([list(args), kwargs])


def _text(form: object) -> str | None:
    try:
        return _written(form)
    except ValueError:
        return None  # an integer of more digits than Python writes


def _sorted_form(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {json.dumps(_sorted_form(key), sort_keys=True): _sorted_form(value[key]) for key in _each(value)}
    if isinstance(value, AbstractSet):
        return sorted(json.dumps(_sorted_form(item), sort_keys=True) for item in _each(value))
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_sorted_form(item) for item in _each(value)]
    return _sorted_object(value)


def _each(value: Any) -> Iterable[Any]:
    return value  # type: ignore[no-any-return]  # one of the containers above, of whatever


def _sorted_object(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _sorted_form(getattr(value, field.name)) for field in fields(value)}
    model_fields: dict[str, Any] | None = getattr(cast("Any", type(value)), "model_fields", None)
    if isinstance(model_fields, dict):
        return {name: _sorted_form(getattr(value, name)) for name in model_fields}
    return _leaf(value)


def _leaf(value: object) -> Any:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError):
        raise ValueRefused(f"a value of type {type(value).__name__} is no data") from None
