"""Running one command from its arguments to its exit code."""

import sys
import traceback
from collections.abc import Sequence
from typing import TextIO

from belay_core.cli.failing import DONE, REFUSED, Complaint, complaint_of
from belay_core.cli.group import belay
from belay_core.cli.printing import complain, emit


def run(arguments: Sequence[str]) -> int:
    """Run the command these arguments ask for, tell its error if it meets one, and give its exit code."""
    for stream in (sys.stdout, sys.stderr):
        _never_refuses(stream)
    try:
        answer: object = belay.main(list(arguments), prog_name="belay", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (every kind is told, one way or another)
        return _tell(error, as_json="--json" in arguments)
    return answer if isinstance(answer, int) else DONE


def _never_refuses(stream: TextIO) -> None:
    """What an encoding cannot say is escaped, so that a narrow terminal ends no command half way."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _tell(error: BaseException, *, as_json: bool) -> int:
    complaint = complaint_of(error)
    if complaint is None:
        # A defect: its traceback is wanted, and like all text it may hold what somebody stored.
        for line in "".join(traceback.format_exception(error)).splitlines():
            complain(line)
        complaint = Complaint(type(error).__name__, str(error))
        if not as_json:
            return REFUSED
    if as_json:
        emit(complaint.document)
    else:
        complain(complaint.line)
    return complaint.code
