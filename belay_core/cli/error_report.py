"""Errors as the command reports them: one line, or one JSON object, and an exit code.

============  ======================================================================
exit code
============  ======================================================================
0             done
1             refused, or not achieved: no such run, too late, a run that failed ..
2             what was typed cannot be used: a parameter, a URL, an app, an extra
130           interrupted at the keyboard
============  ======================================================================
"""

from dataclasses import dataclass
from typing import Final

import click

from belay_core.errors import BelayError, InvalidInput, RunNotFoundError
from belay_core.records.attempt import JsonValue

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

_AS_TYPED: Final = {
    "approval_id": "approval",
    "edited": "edit",
    "idempotency_key": "key",
    "run_at": "at",
    "run_id": "run-id",
    "step_key": "step",
}
"""Names on the command line of the library's parameters, where they differ."""


class DatabaseUnavailable(BelayError):
    """The database cannot be opened; the message has the kind of failure, and never the address."""


class ExtraMissing(BelayError):
    """A package is not installed; the message names the extra that brings it."""


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An error as it is printed: a parameter and the rule that it breaks, or a message."""

    type: str
    message: str
    parameter: str | None = None
    code: int = REFUSED

    @property
    def line(self) -> str:
        """The one line for people."""
        about = "" if self.parameter is None else f"{self.parameter}: "
        return f"belay: {about}{self.message}"

    @property
    def document(self) -> JsonValue:
        """The object for programs."""
        if self.parameter is None:
            return {"error": {"type": self.type, "message": self.message}}
        return {"error": {"type": self.type, "parameter": self.parameter, "rule": self.message}}


def error_report_of(error: BaseException) -> ErrorReport | None:
    """The report of an error that a command expects; None for any other, which is a defect."""
    kind = type(error).__name__
    match error:
        case InvalidInput(parameter=parameter, rule=rule):
            return ErrorReport(kind, rule, _AS_TYPED.get(parameter, parameter), USAGE)
        case ExtraMissing():
            return ErrorReport(kind, str(error), code=USAGE)
        case RunNotFoundError():
            return ErrorReport(kind, str(error).removeprefix("run: "))
        case BelayError():
            return ErrorReport(kind, str(error))
        case click.ClickException():
            return _of_click(error)
        case click.Abort() | KeyboardInterrupt():
            return ErrorReport("Interrupted", "interrupted", code=INTERRUPTED)
        case _:
            return None


def _of_click(error: click.ClickException) -> ErrorReport:
    kind, parameter = type(error).__name__, None
    message = error.message
    if isinstance(error, click.BadParameter) and error.param is not None:
        parameter = _name(error.param)
    if isinstance(error, click.MissingParameter):
        message = "must be given"
    elif isinstance(error, click.UsageError):
        message = error.format_message() if parameter is None else message
    message = message.strip().removesuffix(".")
    return ErrorReport(kind, message[:1].lower() + message[1:], parameter, USAGE)


def _name(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return param.human_readable_name.lower()
    return max(param.opts, key=len).lstrip("-")
