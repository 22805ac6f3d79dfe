"""Rules for what authors give: names of workflows, steps, gates and scopes, keys, spans of time, options."""

import difflib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from belay_core import limits
from belay_core.errors import DefinitionError, InvalidInput
from belay_core.values.text import is_name

_LONGEST_SPAN = timedelta(days=365_250)
"""A thousand years: what begins now and lasts so long ends at a moment that calendars and databases know."""
_ALIKE = 0.66
"""From which likeness on (``difflib``, 0 to 1) a word is another one misspelt; ``retry`` and ``retries`` have 0.667."""
_SHORTEST = 5
"""Letters of the shortest rule that is guessed at; shorter ones are like too many words."""


def admitted_name(parameter: str, value: object, *, key_part: bool = False) -> str:
    """The name, if it is well-formed text of 1 to 512 bytes; part of a key, it holds none of ``/ # [ ]``.

    Raises ``InvalidInput`` naming the parameter and the rule.
    """
    if not is_name(value):
        raise InvalidInput(parameter, f"must be 1 to {limits.MAXIMUM_NAME_BYTES} bytes of well-formed text without NUL")
    if key_part and any(sign in value for sign in "/#[]"):
        raise InvalidInput(parameter, "must not contain / # [ or ]")
    return value


def admitted_span(parameter: str, value: object, *, positive: bool = False) -> timedelta:
    """The span of time, if it is not negative, or greater than zero where it must be ``positive``.

    Raises ``InvalidInput`` naming the parameter and the rule.
    """
    rule = "must be a positive timedelta" if positive else "must be a timedelta that is not negative"
    if not isinstance(value, timedelta) or value < timedelta(0) or (positive and not value):
        raise InvalidInput(parameter, rule)
    if value > _LONGEST_SPAN:
        raise InvalidInput(parameter, f"must be at most {_LONGEST_SPAN.days} days")
    return value


def with_options(what: str, given: Mapping[str, Any], rules: Sequence[str]) -> dict[str, Any]:
    """The rules that were given, and all else under ``options``.

    Raises ``DefinitionError`` for an option that is one of the rules misspelt: it would quietly change nothing.
    """
    guessed = [rule for rule in rules if len(rule) >= _SHORTEST]
    options = {name: value for name, value in given.items() if name not in rules}
    for name in options:
        if meant := difflib.get_close_matches(name, guessed, n=1, cutoff=_ALIKE):
            raise DefinitionError(f"{what}: there is no rule {name}; {meant[0]} is meant, or an option of another name")
    return {**{name: value for name, value in given.items() if name in rules}, "options": options}
