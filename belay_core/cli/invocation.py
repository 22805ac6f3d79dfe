"""Running one command from its arguments to its exit code."""

import sys
import traceback
from collections.abc import Sequence
from itertools import takewhile
from typing import TextIO

from belay_core.cli.error_report import DONE, REFUSED, ErrorReport, error_report_of
from belay_core.cli.group import belay
from belay_core.cli.output import complain, emit
from belay_core.errors import InvalidInput
from belay_core.values.text import is_well_formed


def run(arguments: Sequence[str]) -> int:
    """Run the command these arguments ask for, tell its error if it meets one, and give its exit code."""
    for stream in (sys.stdout, sys.stderr):
        _never_refuses(stream)
    try:
        _require_text(arguments)
        answer: object = belay.main(list(arguments), prog_name="belay", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (every kind is told, one way or another)
        return _tell(error, as_json=_wants_json(arguments))
    return answer if isinstance(answer, int) else DONE


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON was asked for; read off the arguments, as an error may be that they cannot be understood."""
    return "--json" in takewhile(lambda argument: argument != "--", arguments)


def _require_text(arguments: Sequence[str]) -> None:
    """A shell may hand over bytes that are no characters, and no database keeps those."""
    for number, argument in enumerate(arguments, start=1):
        if not is_well_formed(argument):
            raise InvalidInput(f"argument {number}", "must be well-formed text")


def _never_refuses(stream: TextIO) -> None:
    """What an encoding cannot say is escaped, so that a narrow terminal ends no command half way."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _tell(error: BaseException, *, as_json: bool) -> int:
    complaint = error_report_of(error)
    if complaint is None:
        # A defect: its traceback is wanted, and like all text it may hold what somebody stored.
        for line in "".join(traceback.format_exception(error)).splitlines():
            complain(line)
        complaint = ErrorReport(type(error).__name__, str(error))
        if not as_json:
            return REFUSED
    if as_json:
        emit(complaint.document)
    else:
        complain(complaint.line)
    return complaint.code
