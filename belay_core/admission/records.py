"""Records as callers hand them over: belay's own types, or plain dictionaries of the same shape (specs, run store 2.5).

Each field is read once, and only the copy is used: what was checked is what is written, whatever happens to the
caller's object meanwhile. Foreign types are refused, since reading their attributes may run their code.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypeAlias

from belay_core.admission.numbers import is_safe
from belay_core.admission.text import is_durable
from belay_core.records.owner import OwnerId

Copy: TypeAlias = Mapping[str, Any]


def copied(
    value: object,
    *,
    kinds: tuple[type, ...],
    required: Collection[str],
    optional: Collection[str] = (),
    open_ended: bool = False,
) -> Copy | None:
    """The fields of a record, or None where it is none of these kinds or has others than it may.

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
    """The owner that these fields name, or None where one of them cannot last."""
    host_id, pid, nonce = copy["host_id"], copy["pid"], copy["nonce"]
    if not (is_durable(host_id) and is_safe(pid) and is_durable(nonce)):
        return None
    return OwnerId(host_id, pid, nonce)
