"""Typed values to stored text and back (kernel 9 and 18).

A codec gives back, fresh and resumed alike, a value that is equal to what was put in; what would come back as
something else is refused before it is recorded.
"""

import functools
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring
from types import NoneType
from typing import Any, Final, Generic, TypeVar

from belay_core import limits
from belay_core.errors import DefinitionError, ValueRefused
from belay_core.records.attempt import JsonValue
from belay_core.values import json
from belay_core.values.extent import HOLDS_TOO_MANY, holds_too_many
from belay_core.values.read_back import type_change

T = TypeVar("T")


class Untyped:
    """Marks a missing annotation: plain JSON, unchanged."""


_PLAIN: Final = frozenset({Untyped, str, int, float, bool, NoneType})
_CONTAINERS: Final[Mapping[Any, type]] = {
    **dict.fromkeys((dict, dict[str, Any], dict[str, object]), dict),
    **dict.fromkeys((list, list[Any], list[object]), list),
}
"""Annotations that name only a container of plain JSON."""
_SCALARS: Final[Mapping[Any, frozenset[type]]] = {
    Untyped: frozenset({str, int}),
    str: frozenset({str}),
    int: frozenset({int}),
}
_SHORT: Final = 4_096
_LARGEST_SCHEMA: Final = 16_384
_WRITING: Final[Mapping[str, Any]] = {"mode": "json", "warnings": "error", "round_trip": True}
"""Fields under their own names, without computed ones: what their type accepts as input."""
_READING: Final[Mapping[str, Any]] = {"by_name": True, "by_alias": True}
"""Fields by their own names or by their aliases."""


class Codec(Generic[T]):
    """Encodes and decodes values of one type; ``T`` is plain JSON where nothing was annotated."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = NoneType if annotation is None else annotation
        """The type, as it was written."""
        hashable = _hashable(self.annotation)
        self._plain = hashable and self.annotation in _PLAIN
        self._container = _CONTAINERS.get(self.annotation) if hashable else None
        self._scalars = _SCALARS.get(self.annotation, frozenset()) if hashable else frozenset[type]()
        """Types whose values, exactly of them, read back as they are."""
        if not self._plain:
            adapter = _adapter(self.annotation)
            self._serialize, self._validate = adapter.serializer.to_python, adapter.validator.validate_json

    def encode(self, value: T) -> str:
        """The value as compact JSON text, verified to read back equal.

        Raises ``ValueRefused``, which names the rule and the types involved, never the value.
        """
        return self.round_trip(value)[0]

    def round_trip(self, value: T) -> tuple[str, T]:
        """The stored text of a value, and the value as it will be read back. Raises ``ValueRefused``."""
        kind = type(value)
        if kind in self._scalars:
            if kind is str and len(value) <= _SHORT and value.isascii():  # type: ignore[attr-defined, arg-type]
                return encode_basestring(value), value  # type: ignore[arg-type]
            if kind is int and -limits.MAX_SAFE_INTEGER <= value <= limits.MAX_SAFE_INTEGER:  # type: ignore[operator]
                return repr(value), value
        if kind is self._container:
            text = json.admitted(value, max_bytes=limits.MAXIMUM_VALUE_BYTES)
            if text is not None:
                # Only the built-in types of JSON, at every depth: they read back equal.
                read_back: Any = json.decode(text)
                return text, read_back
        data = self._dumped(value)
        text = self._text(value, data)
        return text, self._read_back(value, data, text)

    def _read_back(self, value: T, data: Any, text: str) -> T:
        """What is read back of a stored text: the same value, of the same types all through."""
        kind, expected = type(value).__name__, _name(self.annotation)
        try:
            decoded = self.decode(text)
        except ValueRefused:
            raise ValueRefused(f"a value of type {kind} would not read back as {expected}") from None
        if self._plain:
            return decoded
        if type(decoded) is not type(value) or decoded != value or not _same(self._dumped(decoded), data):
            raise ValueRefused(f"a value of type {kind} would not read back equal")
        changed = type_change(value, decoded)
        if changed is not None:
            raise ValueRefused(f"a value of type {kind} would not read back equal: {changed}; convert it")
        return decoded

    def decode(self, text: str) -> T:
        """The value of a stored text. Raises ``ValueRefused`` where it does not fit the type."""
        if self._plain:
            return self._plain_value(text)  # type: ignore[no-any-return]
        try:
            return self._validate(text, **_READING)  # type: ignore[no-any-return]
        except ValueError:
            raise ValueRefused(f"the stored value does not fit {_name(self.annotation)}") from None

    def decode_written(self, text: str) -> T:
        """The value of a text that a person wrote: what is read is what is written, all of it and nothing else.

        Raises ``ValueRefused`` also for a member that is unknown, doubled or left out, and for a value that would be
        converted; it names the place.
        """
        try:
            written = json.decode(text, unique_keys=True)
        except json.JsonRefused as refused:
            raise ValueRefused(f"the written value {refused}") from None
        value = self.decode(text)
        place = _difference(written, json.decode(self.encode(value)), "")
        if place is not None:
            where = f" at {place}" if place else ""
            raise ValueRefused(f"the written value would be read as something else{where}")
        return value

    def unread(self, text: str) -> str | None:
        """The place of a member of a stored text that its value does not have; None where all of it is read.

        Text that other code wrote may have members of which this type knows nothing. Raises ``ValueRefused`` where it
        does not fit the type at all.
        """
        if self._plain:
            return None
        return _dropped(json.decode(text), json.decode(self.encode(self.decode(text))), "")

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of what is written of this type; empty where it says nothing, or cannot be made."""
        if self.annotation is Untyped:
            return {}
        from belay_core.values.json_schema import schema_of

        found = schema_of(self.annotation)
        return found if len(json.encode(found)) <= _LARGEST_SCHEMA else {}

    def _plain_value(self, text: str) -> Any:
        try:
            value = json.decode(text)
        except json.JsonRefused as refused:
            raise ValueRefused(f"the stored value {refused}") from None
        self._require_plain(value)
        return value

    def _text(self, value: object, data: Any) -> str:
        text = json.admitted(data, max_bytes=limits.MAXIMUM_VALUE_BYTES)
        if text is not None:
            return text
        complaint = json.complaint(data, max_bytes=limits.MAXIMUM_VALUE_BYTES)
        if complaint is not None:
            raise ValueRefused(f"a value of type {type(value).__name__} {complaint}")
        return json.encode(data)

    def _dumped(self, value: object) -> Any:
        """The value as JSON data, by pydantic; the caller checks it."""
        if self._plain:
            self._require_plain(value)
            return value
        if holds_too_many(value):
            raise ValueRefused(f"a value of type {type(value).__name__} {HOLDS_TOO_MANY}")
        try:
            return self._serialize(value, **_WRITING)
        except (ValueError, AttributeError, TypeError, RecursionError):
            kind, expected = type(value).__name__, _name(self.annotation)
            raise ValueRefused(f"a value of type {kind} cannot be stored as {expected}") from None

    def _require_plain(self, value: object) -> None:
        expected = self.annotation
        if expected is Untyped or type(value) is expected or (expected is float and type(value) is int):
            return
        raise ValueRefused(f"a value of type {type(value).__name__} is not {_name(expected)}")


def _adapter(annotation: Any) -> Any:
    from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    why = "is no type whose values can be stored as JSON: use a dataclass or a pydantic model"
    try:
        try:
            adapter: Any = TypeAdapter(annotation, config=config)
        except PydanticUserError as error:
            if isinstance(error, PydanticSchemaGenerationError):
                raise
            adapter = TypeAdapter(annotation)  # models and dataclasses carry a configuration of their own
        adapter.rebuild()
        return adapter
    except NameError:
        why = "names a type that is not defined where it stands"
    except PydanticUserError as error:
        why += "" if error.code is None else f" ({error.code})"
    except TypeError:
        pass
    raise DefinitionError(f"{_name(annotation)} {why}")


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal except for the order of lists that came from a set, which is arbitrary."""
    return one == other or _ordered(one) == _ordered(other)


def _difference(written: JsonValue, read: JsonValue, path: str) -> str | None:
    """Where what is read differs from what is written; a whole number may be read as a decimal one, not the reverse."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name in (*written, *read):
            below = f"{path}.{name}" if path else name
            if name not in written or name not in read:
                return path if name not in read else below
            if (place := _difference(written[name], read[name], below)) is not None:
                return place
        return None
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        places = (_difference(*pair, f"{path}[{index}]") for index, pair in enumerate(zip(written, read, strict=True)))
        place = next((each for each in places if each is not None), None)
        same_items = place is None or json.encode(_ordered(written)) == json.encode(_ordered(read))
        return None if same_items else place
    same = type(written) is type(read) or (type(written) is int and type(read) is float)
    return None if same and written == read else path


def _dropped(written: JsonValue, read: JsonValue, path: str) -> str | None:
    """The place of a member that is not read. A renamed one is, under its new name: another new member equals it."""
    if isinstance(written, dict) and isinstance(read, dict):
        new = [json.canonical(read[name]) for name in read if name not in written]
        for name, member in written.items():
            below = f"{path}.{name}" if path else name
            if name not in read and json.canonical(member) not in new:
                return below
            if name in read and (place := _dropped(member, read[name], below)) is not None:
                return place
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        places = (_dropped(*pair, f"{path}[{index}]") for index, pair in enumerate(zip(written, read, strict=True)))
        return next((each for each in places if each is not None), None)
    return None


def _ordered(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return sorted((_ordered(item) for item in value), key=json.canonical)
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in value.items()}
    return value


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _hashable(annotation: object) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=1024)
def _cached(annotation: Any) -> Codec[Any]:
    return Codec(annotation)


def codec_for(annotation: Any) -> Codec[Any]:
    """The codec of an annotation; ``Any`` and ``object`` mean plain JSON."""
    if annotation is Any or annotation is object:
        return _cached(Untyped)
    return _cached(annotation) if _hashable(annotation) else Codec(annotation)


def codec_of(value: object, of: Any = None) -> Codec[Any]:
    """The codec of a value whose type is ``of`` or else the value's own; bare containers are plain JSON."""
    if of is not None:
        return codec_for(of)
    return codec_for(Untyped if type(value) in (list, dict) else type(value))
