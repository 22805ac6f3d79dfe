"""Checks of records from callers: belay's own types, or plain dictionaries of the same shape (specs, run store 2.5).

Each field is read once, and only the copy is used: what was checked is what is written, also if the caller's object
changes meanwhile. Foreign types are refused, since reading their attributes may run their code.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, Final, TypeAlias

from belay_core.errors import InvalidInput
from belay_core.records.owner import OwnerId
from belay_core.values.numbers import is_safe
from belay_core.values.text import is_durable, is_name, is_well_formed

Copy: TypeAlias = Mapping[str, Any]


def copied(
    value: object,
    *,
    kinds: tuple[type, ...],
    required: Collection[str],
    optional: Collection[str] = (),
    open_ended: bool = False,
) -> Copy | None:
    """The fields of a record, or None if it is of another kind or has unknown fields.

    With ``open_ended`` fields beyond the named ones are ignored rather than refused.
    """
    if type(value) in kinds:
        known = {field.name for field in fields(value)}  # type: ignore[arg-type]
        wanted = [name for name in (*required, *optional) if name in known]
        return {name: getattr(value, name) for name in wanted}
    if type(value) is not dict:
        return None
    given: dict[Any, Any] = {**value}
    if not all(type(key) is str for key in given) or not given.keys() >= set(required):
        return None
    if not open_ended and not given.keys() <= {*required, *optional}:
        return None
    return given


def owner_fields(value: object) -> Copy | None:
    """The three fields of an owner, unchecked."""
    return copied(value, kinds=(OwnerId,), required=("host_id", "pid", "nonce"))


def owner_of(copy: Copy) -> OwnerId | None:
    """The owner of these fields, or None if one of them cannot be stored."""
    host_id, pid, nonce = copy["host_id"], copy["pid"], copy["nonce"]
    if not (is_durable(host_id) and is_safe(pid) and is_durable(nonce)):
        return None
    return OwnerId(host_id, pid, nonce)


_DURABLE: Final = "must be 1 to 1024 UTF-16 code units of well-formed text without NUL"
_NAME: Final = "must be well-formed text without NUL, 1 to 512 bytes of UTF-8"
_TEXT: Final = "must be well-formed text without NUL"


def require_durable(parameter: str, value: object) -> None:
    """An identifier that every store can keep. Raises ``InvalidInput``."""
    if not is_durable(value):
        raise InvalidInput(parameter, _DURABLE)


def require_name(parameter: str, value: object) -> None:
    """A name that only the engine keeps. Raises ``InvalidInput``."""
    if not is_name(value):
        raise InvalidInput(parameter, _NAME)


def require_text(parameter: str, value: object) -> None:
    """Text that every store can keep. Raises ``InvalidInput``."""
    if type(value) is not str or "\0" in value or not is_well_formed(value):
        raise InvalidInput(parameter, _TEXT)


def require_optional_text(parameter: str, value: object) -> None:
    """The same, or None. Raises ``InvalidInput``."""
    if value is not None:
        require_text(parameter, value)
