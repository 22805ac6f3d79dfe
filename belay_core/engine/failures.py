"""Errors as data: what is kept of an exception that an author's code raised."""

import traceback
from typing import cast

from belay_core.records.attempt import JsonValue
from belay_core.values import json
from belay_core.workflows.raised import failed_steps

_MESSAGE = 4_096
_TRACEBACK = 16_384


def failure(error: BaseException) -> str:
    """Type, message and traceback of an exception as JSON text; always writable, whatever the exception is."""
    kept: dict[str, JsonValue] = {
        "type": _storable(type(error).__name__, _MESSAGE),
        "message": _storable(message_of(error), _MESSAGE),
        "traceback": _storable(_traceback(error), _TRACEBACK),
    }
    return json.encode(kept)


def run_failure(error: BaseException) -> str:
    """The same of what failed a run, with the keys of the failed steps that led to it (``steps``), if any did."""
    keys = failed_steps(error)
    text = failure(error)
    return f'{text[:-1]},"steps":{json.encode(cast("JsonValue", keys))}}}' if keys else text


def message_of(error: BaseException) -> str:
    """The exception's own text, or nothing where giving it fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (an exception that cannot be shown must not hide that it was raised)
        return ""


def read_failure(text: str | None) -> tuple[str, str]:
    """Type and message of a stored failure."""
    facts = read_facts(text)
    return str(facts.get("type", "Unknown")), str(facts.get("message", ""))


def read_facts(text: str | None) -> dict[str, JsonValue]:
    """The members of a stored object; none where the text is missing, torn or something else."""
    try:
        value = json.decode(text) if text else None
    except json.JsonRefused:
        return {}
    return value if isinstance(value, dict) else {}


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-20))
    except Exception:  # noqa: BLE001  (as above)
        return ""


def _storable(text: str, most: int) -> str:
    """Well-formed text of at most so many characters; what cannot be stored is escaped."""
    cut = text if len(text) <= most else f"{text[:most]} …"
    return cut.encode("utf-8", "backslashreplace").decode()
