"""The command ``belay``: click is imported when it is called, everything else when a subcommand needs it."""

import sys
from typing import NoReturn

_WITHOUT_CLICK = "belay: click: is not installed; pip install 'belay-core[cli]'\n"


def main() -> NoReturn:
    """The entry point of the command; ends the process with its exit code."""
    try:
        from belay_core.cli.invocation import run
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        sys.stderr.write(_WITHOUT_CLICK)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
