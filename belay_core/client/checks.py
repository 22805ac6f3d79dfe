"""Checks of a client's parameters: each is checked by name before any store is called."""

from typing import Any

from belay_core.client.handle import RunHandle
from belay_core.errors import InvalidInput, ValueRefused
from belay_core.ids import RunId
from belay_core.limits import MAXIMUM_IDENTIFIER_LENGTH, MAXIMUM_VALUE_BYTES
from belay_core.values import json
from belay_core.values.codecs import codec_of
from belay_core.values.text import is_durable

MOST_LISTED = 1_000
"""The longest listing that one call returns."""


def checked_run(run: str | RunHandle[Any], parameter: str = "run") -> RunId:
    """The id of a run given by handle or by id. Raises ``InvalidInput``."""
    if isinstance(run, RunHandle):
        return run.run_id
    if not is_durable(run):
        raise InvalidInput(parameter, f"must be 1 to {MAXIMUM_IDENTIFIER_LENGTH} units of well-formed text without NUL")
    return RunId(run)


def checked_limit(limit: object) -> int:
    """The length of a listing. Raises ``InvalidInput``."""
    if type(limit) is not int or not 1 <= limit <= MOST_LISTED:
        raise InvalidInput("limit", f"must be a whole number from 1 to {MOST_LISTED}")
    return limit


def checked_json(parameter: str, text: object) -> str:
    """JSON text as it is stored. Raises ``InvalidInput``."""
    complaint = json.text_complaint(text, max_bytes=MAXIMUM_VALUE_BYTES)
    if type(text) is not str or complaint is not None:
        raise InvalidInput(parameter, complaint or json.INVALID_TEXT)
    return text


def checked_value(parameter: str, value: object, of: Any) -> str:
    """The stored text of a value. Raises ``InvalidInput``, which names the type and never the value."""
    try:
        return codec_of(value, of).encode(value)
    except ValueRefused as refused:
        raise InvalidInput(parameter, str(refused)) from None
