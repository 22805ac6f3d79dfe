"""Checks of authors' parameters: names of workflows, steps, gates and scopes, keys, durations, options."""

import difflib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from belay_core import limits
from belay_core.errors import DefinitionError, InvalidInput
from belay_core.values.text import is_name

_LONGEST_SPAN = timedelta(days=365_250)
"""A thousand years: a wait of this length from now ends at a time that calendars and databases can represent."""
_ALIKE = 0.66
"""The similarity (``difflib``, 0 to 1) from which a word is a misspelling; ``retry`` and ``retries`` have 0.667."""
_SHORTEST = 5
"""Letters of the shortest rule whose misspellings are detected; shorter ones resemble too many words."""


def checked_name(parameter: str, value: object, *, key_part: bool = False) -> str:
    """The name, if it is well-formed text of 1 to 512 bytes; part of a key, it holds none of ``/ # [ ]``.

    Raises ``InvalidInput`` that names the parameter and the rule.
    """
    if not is_name(value):
        raise InvalidInput(parameter, f"must be 1 to {limits.MAXIMUM_NAME_BYTES} bytes of well-formed text without NUL")
    if key_part and any(sign in value for sign in "/#[]"):
        raise InvalidInput(parameter, "must not contain / # [ or ]")
    return value


def admitted_span(parameter: str, value: object, *, positive: bool = False) -> timedelta:
    """The duration, if it is not negative, or with ``positive`` greater than zero.

    Raises ``InvalidInput`` that names the parameter and the rule.
    """
    rule = "must be a positive timedelta" if positive else "must be a timedelta that is not negative"
    if not isinstance(value, timedelta) or value < timedelta(0) or (positive and not value):
        raise InvalidInput(parameter, rule)
    if value > _LONGEST_SPAN:
        raise InvalidInput(parameter, f"must be at most {_LONGEST_SPAN.days} days")
    return value


def with_options(what: str, given: Mapping[str, Any], rules: Sequence[str]) -> dict[str, Any]:
    """The given rules, and all other keywords under ``options``.

    Raises ``DefinitionError`` for an option that is a misspelt rule: it would silently change nothing.
    """
    guessed = [rule for rule in rules if len(rule) >= _SHORTEST]
    options = {name: value for name, value in given.items() if name not in rules}
    for name in options:
        if meant := difflib.get_close_matches(name, guessed, n=2, cutoff=_ALIKE):
            likely = " or ".join(meant)
            raise DefinitionError(f"{what}: there is no rule {name}; {likely} is meant, or an option of another name")
    return {**{name: value for name, value in given.items() if name in rules}, "options": options}
