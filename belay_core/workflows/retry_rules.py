"""What an author says of further tries: how many, after which errors, and how long to wait."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias, cast

from belay_core.errors import DefinitionError, Fail, InvalidInput, TryAgain
from belay_core.workflows.names import admitted_span

_MAXIMUM_RETRIES = 1_000
_NEVER_BY_DEFAULT: Final = (PermissionError, DefinitionError)
"""Errors that another try cannot mend: the right is missing, or the workflow is written wrongly."""

Selection: TypeAlias = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
"""Errors by their types, or a predicate of the error."""


class RetryRules(NamedTuple):
    """The rules of one step."""

    retries: int
    backoff: timedelta
    max_backoff: timedelta | None
    jitter: bool
    retry_on: Selection | None
    no_retry_on: Selection | None

    def may_mend(self, error: BaseException) -> bool:
        """Whether another try may end otherwise than in this error.

        ``Fail`` never, ``TryAgain`` always; then ``no_retry_on``, then ``retry_on``, and without either every error
        but ``PermissionError`` and ``DefinitionError``.
        """
        if isinstance(error, (Fail, TryAgain)):
            return isinstance(error, TryAgain)
        if self.no_retry_on is not None and _selects(self.no_retry_on, error, undecided=True):
            return False
        if self.retry_on is not None:
            return _selects(self.retry_on, error, undecided=False)
        return not isinstance(error, _NEVER_BY_DEFAULT)


def retry_rules(
    retries: object, backoff: object, max_backoff: object, jitter: object, retry_on: object, no_retry_on: object
) -> RetryRules:
    """The rules, checked. Raises ``DefinitionError`` that names the one that is broken."""
    if type(retries) is not int or not 0 <= retries <= _MAXIMUM_RETRIES:
        raise DefinitionError(f"retries: must be a whole number from 0 to {_MAXIMUM_RETRIES}")
    if type(jitter) is not bool:
        raise DefinitionError("jitter: must be True or False")
    if not retries and (retry_on is not None or no_retry_on is not None):
        name = "retry_on" if retry_on is not None else "no_retry_on"
        raise DefinitionError(f"{name}: chooses among errors that are tried again, and there are none: give retries=")
    first = span("backoff", backoff)
    longest = None if max_backoff is None else span("max_backoff", max_backoff)
    if longest is not None and longest < first:
        raise DefinitionError("max_backoff: must not be shorter than backoff")
    return RetryRules(
        retries, first, longest, jitter, _selection("retry_on", retry_on), _selection("no_retry_on", no_retry_on)
    )


def span(parameter: str, value: object) -> timedelta:
    """A positive duration. Raises ``DefinitionError``."""
    try:
        return admitted_span(parameter, value, positive=True)
    except InvalidInput as refused:
        raise DefinitionError(str(refused)) from None


def _selection(parameter: str, value: object) -> Selection | None:
    given: tuple[object, ...] = (value,)
    if type(value) is tuple:
        given = cast("tuple[object, ...]", value)
    of_types = all(isinstance(each, type) and issubclass(each, BaseException) for each in given)
    if value is None or (given and of_types) or (given is not value and _is_function(given[0])):
        return cast("Selection | None", value)
    raise DefinitionError(f"{parameter}: must be an exception type, a tuple of them, or a function of the error")


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


def _selects(selection: Selection, error: BaseException, *, undecided: bool) -> bool:
    """Whether the selection has the error; ``undecided`` where its predicate raises, so that nothing is repeated."""
    if isinstance(selection, (type, tuple)):
        return isinstance(error, selection)
    try:
        return bool(selection(error))
    except Exception:
        logging.getLogger("belay").exception("a predicate of retry_on or no_retry_on raised; the step is not retried")
        return undecided
