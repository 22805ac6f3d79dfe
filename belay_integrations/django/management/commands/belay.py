"""``manage.py belay``: the command line of belay with the settings of the project."""

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from belay_core.cli.invocation import run


class Command(BaseCommand):
    """Passes its arguments to ``belay``, which finds the project's database and workflows in its environment."""

    help = "The command line of belay: worker, migrate, show, approve and the others; see belay --help."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run ``belay`` with what follows its name; the parser of Django would refuse its options."""
        for name in ("BELAY_DATABASE", "BELAY_APP"):
            value: object = getattr(settings, name, None)
            if isinstance(value, str):
                os.environ.setdefault(name, value)
        sys.exit(run(argv[2:]))

    def handle(self, *args: Any, **options: Any) -> None:
        """Run ``belay`` with these arguments, for ``call_command``."""
        del options
        self.run_from_argv(["manage.py", "belay", *(str(each) for each in args)])
