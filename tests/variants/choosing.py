"""Which tests a variant runs."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_tests(given: Sequence[str], usual: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run pytest with what is given; the usual tests where no file is among it. The exit code is pytest's."""
    names_file = any((ROOT / argument.partition("::")[0]).exists() for argument in given if argument[:1] != "-")
    chosen = [*given] if names_file else [*usual, *given]
    command = [sys.executable, "-m", "pytest", "-q", *chosen]
    return subprocess.run(command, check=False, cwd=ROOT, env=dict(environment)).returncode
