"""Run one command from its arguments to its exit code."""

import sys
import traceback
from collections.abc import Sequence
from itertools import takewhile
from typing import TextIO

from belay_core.cli.error_report import DONE, REFUSED, ErrorReport, error_report_of
from belay_core.cli.group import belay
from belay_core.cli.output import write_error, write_json
from belay_core.errors import InvalidInput
from belay_core.values.text import is_well_formed


def run(arguments: Sequence[str]) -> int:
    """Run the command of these arguments, print its error if there is one, and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        _escape_unencodable(stream)
    try:
        _require_text(arguments)
        answer: object = belay.main(list(arguments), prog_name="belay", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (every kind is reported)
        return _report(error, as_json=_wants_json(arguments))
    return answer if isinstance(answer, int) else DONE


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON was asked for; read from the raw arguments, since they may be what cannot be parsed."""
    return "--json" in takewhile(lambda argument: argument != "--", arguments)


def _require_text(arguments: Sequence[str]) -> None:
    """Raise ``InvalidInput`` for bytes that are no characters: a shell may pass them, and no database stores them."""
    for number, argument in enumerate(arguments, start=1):
        if not is_well_formed(argument):
            raise InvalidInput(f"argument {number}", "must be well-formed text")


def _escape_unencodable(stream: TextIO) -> None:
    """Escape characters that the stream's encoding lacks, so that printing one does not end the command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _report(error: BaseException, *, as_json: bool) -> int:
    report = error_report_of(error)
    if report is None:
        # A defect: print its traceback, escaped, since it may hold stored text.
        for line in "".join(traceback.format_exception(error)).splitlines():
            write_error(line)
        report = ErrorReport(type(error).__name__, str(error))
        if not as_json:
            return REFUSED
    if as_json:
        write_json(report.document)
    else:
        write_error(report.line)
    return report.code
