"""JSON: which values are allowed, how they are encoded and decoded (specs, run store 2.6; kernel 9).

A complaint is a fixed phrase without a subject ("contains a cycle"), so that it holds no value; None is no complaint.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final, NoReturn, cast

from belay_core import limits
from belay_core.records.attempt import JsonValue
from belay_core.values.text import is_well_formed

INVALID_TEXT: Final = "must be valid JSON text"
EMPTY_TEXT: Final = "must be non-empty JSON text"
TOO_DEEP: Final = f"exceeds the maximum JSON depth of {limits.MAXIMUM_JSON_DEPTH}"
TOO_MANY_VALUES: Final = f"contains more than {limits.MAXIMUM_JSON_NODES} JSON values"
TOO_MANY_MEMBERS: Final = "exceeds the JSON members limit"
TOO_LARGE: Final = "exceeds the JSON byte limit"
NOT_FINITE: Final = "contains a non-finite number"
UNSAFE_INTEGER: Final = "contains an integer beyond 2^53 - 1"
BAD_TEXT: Final = "contains unbounded or ill-formed text"
BAD_KEY: Final = "contains an unbounded or ill-formed object key"
NOT_PLAIN: Final = "contains a non-plain object"
CYCLE: Final = "contains a cycle"


class JsonRefused(ValueError):
    """A text is no valid JSON; the message is a complaint and repeats nothing of the text."""


def complaint(value: object, *, max_bytes: int | None = None) -> str | None:
    """What keeps a value from being stored as data, or None; exactly the built-in types are data."""
    walk = _Walk(safe_integers=True)
    found = walk.over(value)
    # A value that holds a long text many times is small in memory and large when encoded.
    if found is None and max_bytes is not None and (walk.characters > max_bytes or _encoded_bytes(value) > max_bytes):
        return TOO_LARGE
    return found


def admitted(value: object, *, max_bytes: int) -> str | None:
    """The stored form of a valid value, if a quick check is enough; None means that the full check is needed.

    Almost every value is small and flat: its depth and the length of its text bound everything that the walk bounds.
    """
    longest = min(_QUICK_LENGTH, max_bytes // 4)
    if _left_over(value, _QUICK_DEPTH, longest) < 0:
        return None
    text = _written(value)
    return text if len(text) <= longest else None


def text_complaint(text: object, *, max_bytes: int | None = None) -> str | None:
    """What keeps a JSON text from being stored unchanged; its integers may be of any size."""
    if type(text) is not str or not text:
        return EMPTY_TEXT
    try:
        value: object = _READER.decode(text)
    except (ValueError, RecursionError):
        return INVALID_TEXT
    found = BAD_TEXT if not is_well_formed(text) else _Walk(safe_integers=False).over(value)
    if found is None and max_bytes is not None:
        size = max(len(text.encode()), _encoded_bytes(value))
        return TOO_LARGE if size > max_bytes else None
    return found


def encode(value: JsonValue) -> str:
    """The stored form of an admitted value: compact, members in insertion order, floats by ``repr``."""
    return _written(value)


def canonical(value: JsonValue) -> str:
    """A form that is the same for equal values, whatever their order or notation; only hashed, never stored.

    ``1`` and ``1.0`` agree, as JSON has one kind of number; ``1`` and ``true`` do not.
    """
    return _sorted_written(_respelled(value))


def decode(text: str, *, unique_keys: bool = False) -> JsonValue:
    """The value of a JSON text.

    ``unique_keys`` refuses a repeated key, of which otherwise the last one wins: for text that a person wrote.
    Raises ``JsonRefused`` for anything that is not JSON, NaN, infinities and numbers that overflow.
    """
    found = INVALID_TEXT
    reader = _UNIQUE_READER if unique_keys else _STRICT_READER
    try:
        # Stored text has no surrounding white space, and a search for it takes longer than decoding a small text.
        value, end = (None, 0) if text[:1].isspace() else reader.raw_decode(text)
        return cast("JsonValue", value if end == len(text) else reader.decode(text))
    except JsonRefused as refused:
        found = refused.args[0]
    except (ValueError, RecursionError, TypeError):
        pass
    # Raised here so that the parser's error, which holds the whole text, is not its context.
    raise JsonRefused(found)


def same_json(left: JsonValue, right: JsonValue) -> bool:
    """Whether two values are equal as JSON: key order does not count, ``true`` is not 1, 1 is 1.0."""
    pairs: list[tuple[JsonValue, JsonValue]] = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() != other.keys():
                return False
            pairs.extend((item, other[key]) for key, item in one.items())
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif not _same_scalar(one, other):
            return False
    return True


def _same_scalar(one: JsonValue, other: JsonValue) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def _respelled(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer() and abs(value) <= limits.MAX_SAFE_INTEGER:
        return int(value)
    if isinstance(value, list):
        return [_respelled(item) for item in value]
    if isinstance(value, dict):
        return {key: _respelled(item) for key, item in value.items()}
    return value


def _encoded_bytes(value: object) -> int:
    return len(_written(value).encode())


class _Walk:
    """One pass over a value with an explicit stack: a deep value must not exhaust the interpreter's."""

    def __init__(self, *, safe_integers: bool) -> None:
        self.characters = 0
        """The length of all texts and keys in the value: a lower bound of its encoded bytes."""
        self._safe_integers = safe_integers
        self._nodes = 0
        self._members = 0
        self._open: set[int] = set()
        self._stack: list[tuple[int, Iterator[object]]] = []

    def over(self, value: object) -> str | None:
        """The first complaint about this value or one within it."""
        found = self._enter(value)
        while found is None and self._stack:
            identity, members = self._stack[-1]
            for member in members:
                found = self._enter(member)
                if found is not None or self._stack[-1][0] != identity:
                    break
            else:
                self._stack.pop()
                self._open.discard(identity)
        return found

    def _enter(self, value: object) -> str | None:
        kind = type(value)
        if kind in _CONTAINERS and id(value) in self._open:
            return CYCLE
        if len(self._stack) > limits.MAXIMUM_JSON_DEPTH:
            return TOO_DEEP
        self._nodes += 1
        if self._nodes > limits.MAXIMUM_JSON_NODES:
            return TOO_MANY_VALUES
        if kind is list:
            return self._open_list(cast("list[object]", value))
        if kind is dict:
            return self._open_object(cast("dict[object, object]", value))
        return self._scalar(value)

    def _open_list(self, value: list[object]) -> str | None:
        # A copy, so that a concurrent change cannot fall between the check and the walk.
        members = list(value)
        return self._push(value, len(members), iter(members))

    def _open_object(self, value: dict[object, object]) -> str | None:
        members = dict(value)
        if not all(type(key) is str and is_well_formed(key) for key in members):
            return BAD_KEY
        self.characters += sum(map(len, cast("dict[str, object]", members)))
        return self._push(value, len(members), iter(members.values()))

    def _push(self, container: object, count: int, members: Iterator[object]) -> str | None:
        self._members += count
        if self._members > limits.MAXIMUM_JSON_NODES:
            return TOO_MANY_MEMBERS
        self._open.add(id(container))
        self._stack.append((id(container), members))
        return None

    def _scalar(self, value: object) -> str | None:
        if value is None or type(value) is bool:
            return None
        if type(value) is str:
            self.characters += len(value)
            return None if is_well_formed(value) else BAD_TEXT
        if type(value) is int:
            return UNSAFE_INTEGER if self._safe_integers and abs(value) > limits.MAX_SAFE_INTEGER else None
        if type(value) is float:
            return None if math.isfinite(value) else NOT_FINITE
        if isinstance(value, Mapping):
            return NOT_PLAIN
        return f"contains a non-JSON {type(value).__name__}"


_CONTAINERS: Final = (list, dict)
_QUICK_DEPTH: Final = 4
_QUICK_LENGTH: Final = 16_384
_QUICK_MEMBERS: Final = 64


def _left_over(value: object, depth: int, room: int) -> int:
    """Characters left of ``room`` when the value is encoded; below 0 if it may be no data or too large.

    Only the built-in types, with few members and none deeper than ``depth``, count as data here. A shared value
    counts each time, and counting stops when there is no room.
    """
    if type(value) is str:
        return room - len(value) if value.isascii() or is_well_formed(value) else -1
    if type(value) is dict or type(value) is list:
        return _left_over_by_container(cast("list[object] | dict[object, object]", value), depth, room - 2)
    if type(value) is int:
        return room - 1 if -limits.MAX_SAFE_INTEGER <= value <= limits.MAX_SAFE_INTEGER else -1
    if type(value) is float:
        return room - 1 if math.isfinite(value) else -1
    return room - 1 if value is None or type(value) is bool else -1


def _left_over_by_container(value: list[object] | dict[object, object], depth: int, room: int) -> int:
    if not depth or len(value) > _QUICK_MEMBERS:
        return -1
    if type(value) is dict:
        for key, member in value.items():
            if type(key) is not str or not (key.isascii() or is_well_formed(key)) or room < 0:
                return -1
            room -= len(key)
            room = _left_over(member, depth - 1, room)
        return room
    for member in value:
        if room < 0:
            return -1
        room = _left_over(member, depth - 1, room)
    return room


def _refuse_constant(_name: str) -> NoReturn:
    raise JsonRefused(NOT_FINITE)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonRefused(NOT_FINITE)
    return number


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JsonRefused("contains the same object key twice")
    return members


_READER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_STRICT_READER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_UNIQUE_READER: Final = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique
)


def writer(*, ensure_ascii: bool = False, sort_keys: bool = False, allow_nan: bool = False) -> Callable[[object], str]:
    """A function that encodes values compactly; unless ``allow_nan``, it raises ``ValueError`` for a non-finite number.

    ``JSONEncoder.encode`` makes a new encoder for each value, which takes longer than encoding a small one.
    """
    quick = parts_writer(ensure_ascii=ensure_ascii, sort_keys=sort_keys, allow_nan=allow_nan)
    return lambda value: "".join(quick(value, 0))


def parts_writer(
    *, ensure_ascii: bool = False, sort_keys: bool = False, allow_nan: bool = False
) -> Callable[[object, int], Iterable[str]]:
    """The same for callers that join the parts themselves; the second argument is 0."""
    slow = json.JSONEncoder(
        ensure_ascii=ensure_ascii, allow_nan=allow_nan, separators=(",", ":"), sort_keys=sort_keys, check_circular=False
    )
    make: Callable[..., Callable[[object, int], tuple[str, ...]]] | None = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without the C part
        return lambda value, _level: (slow.encode(value),)
    quoted: Any = encode_basestring_ascii if ensure_ascii else encode_basestring
    return make(None, slow.default, quoted, None, ":", ",", sort_keys, False, allow_nan)  # noqa: FBT003  (by position only)


_written: Final = writer()
_sorted_written: Final = writer(sort_keys=True)
