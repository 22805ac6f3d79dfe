"""JSON of the user: on the command line, in a file (``@file``), or on the standard input (``-``)."""

import sys
from pathlib import Path
from types import NoneType
from typing import Any, Final

from belay_core.errors import InvalidInput, ValueRefused
from belay_core.records.attempt import JsonValue
from belay_core.values import json
from belay_core.values.codecs import Untyped, codec_for
from belay_core.workflows.definition import Definition

_MOST_LISTED: Final = 3


def json_text(parameter: str, given: str) -> str:
    """The JSON text of an argument. Raises ``InvalidInput`` if it is no JSON, or repeats an object key."""
    text = _read_argument(parameter, given)
    try:
        json.decode(text, unique_keys=True)
    except json.JsonRefused as refused:
        rule = str(refused)
        if rule == json.INVALID_TEXT:
            rule = f"{rule}; a text is written with its quotes: '\"like this\"'"
        raise InvalidInput(parameter, rule) from None
    return text


def stored_text(parameter: str, given: str) -> str:
    """The JSON text of an argument, in the form in which it is stored."""
    value: JsonValue = json.decode(json_text(parameter, given))
    try:
        return codec_for(Untyped).encode(value)
    except ValueRefused as refused:
        raise InvalidInput(parameter, str(refused)) from None


def input_of(definition: Definition[Any, Any], given: str | None) -> Any:
    """The typed input of a workflow. Raises ``InvalidInput`` that names what does not match its type."""
    codec, name = definition.input_codec, definition.name
    if given is not None and codec.annotation is NoneType:
        raise InvalidInput("input", f"workflow {name} takes none")
    text = "null" if given is None else json_text("input", given)
    try:
        return codec.decode(text)
    except ValueRefused as refused:
        if given is None:
            rule = f"must be given: workflow {name} takes {_type_name(codec.annotation)}"
        else:
            rule = f"workflow {name}: {_type_errors(codec.annotation, text) or refused}"
        raise InvalidInput("input", rule) from None


def _read_argument(parameter: str, given: str) -> str:
    if given != "-" and not given.startswith("@"):
        return given
    try:
        content = sys.stdin.buffer.read() if given == "-" else Path(given[1:]).read_bytes()
    except OSError as error:
        raise InvalidInput(parameter, f"the file cannot be read: {error.strerror}") from None
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidInput(parameter, "must be UTF-8 text") from None


def _type_errors(annotation: Any, text: str) -> str | None:
    """What in the text does not match the type, and where; None if only the codec can tell."""
    if annotation in (str, int, float, bool):
        return None
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(annotation).validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    else:
        return None
    listed = [": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in found[:_MOST_LISTED]]
    more = len(found) - len(listed)
    return "; ".join(listed) + (f" (and {more} more)" if more else "")


def _type_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
