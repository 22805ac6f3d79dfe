"""A virtual environment that knows nothing of the working tree: what a stranger has who installs belay."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

BLOCK = re.compile(r"^(?P<name>[a-z0-9-]+)==.+?(?=^[a-z0-9-]+==|\Z)", re.MULTILINE | re.DOTALL)
VIA = re.compile(r"^    # (?:via |  )(?P<parent>\S.*)$", re.MULTILINE)
PLUGIN = """
import json, os, sys

def pytest_sessionfinish():
    here = os.path.realpath(os.environ["FORBIDDEN"]) + os.sep
    files = {os.path.realpath(getattr(module, "__file__", None) or "/") for module in sys.modules.values()}
    with open(os.environ["IMPORTED"], "w") as report:
        json.dump(sorted(file for file in files if file.startswith(here)), report)
"""


def pinned(locked: str, *roots: str) -> str:
    """Those of the locked requirements, hashes and all, that something among ``roots`` needs.

    A root is spelled as the lock names what needs a package: a project with its file, or a package.
    """
    blocks = {found["name"]: found[0] for found in BLOCK.finditer(locked)}
    parents = {name: {found["parent"] for found in VIA.finditer(block)} for name, block in blocks.items()}
    # A package is spelled with its extras where they brought the other in.
    needed = set(roots)
    while more := {
        name
        for name, needing in parents.items()
        if name not in needed and (name in roots or {parent.partition("[")[0] for parent in needing} & needed)
    }:
        needed |= more
    return "".join(blocks[name] for name in sorted(needed & blocks.keys()))


def make_venv(folder: Path) -> Path:
    """A virtual environment with nothing in it; where its programs are."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin"


class Foreign:
    """The programs of an environment, run in a folder; nothing may come from the ``forbidden`` tree."""

    def __init__(self, folder: Path, programs: Path, forbidden: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._forbidden = forbidden
        self._plugins = folder / "plugins"
        self._plugins.mkdir()
        (self._plugins / "imported.py").write_text(PLUGIN)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "MYPY"))}
        return {**kept, **more}

    def run(self, program: str, *arguments: str | Path, folder: Path | None = None, **environment: str) -> str:
        """What a program of the environment prints; raises ``AssertionError`` with all it said where it fails."""
        done = subprocess.run(
            [self._programs / program, *arguments],
            check=False,
            cwd=folder or self.folder,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def install(self, requirements: str, *wheels: Path) -> None:
        """Install hashed requirements, and the wheels with nothing besides."""
        file = self.folder / "requirements.txt"
        file.write_text(requirements)
        pip = ("-m", "pip", "install", "--quiet", "--no-deps")
        self.run("python", *pip, "--require-hashes", "--only-binary", ":all:", "--requirement", file)
        self.run("python", *pip, "--no-index", *wheels)
        self.run("python", "-m", "pip", "check")

    def test(self, project: Path, *options: str | Path) -> int:
        """How many tests of a project passed; fails where one did not, or the forbidden tree was imported from."""
        counts, imported = self.folder / "counts.xml", self.folder / "imported.json"
        self.run(
            "pytest",
            *("-q", "-p", "imported", "-p", "no:cacheprovider", f"--junitxml={counts}", *options),
            folder=project,
            PYTHONPATH=str(self._plugins),
            FORBIDDEN=str(self._forbidden),
            IMPORTED=str(imported),
        )
        strangers = json.loads(imported.read_text())
        assert strangers == [], f"imported from the working tree: {strangers}"
        suite = ET.parse(counts).getroot()[0]  # noqa: S314  (written a moment ago by pytest)
        assert int(suite.get("skipped", 0)) == 0, "a test was skipped"
        return int(suite.get("tests", 0))


def figures(path: Path) -> Mapping[str, int]:
    """The figures the conformance suite has written."""
    found: Mapping[str, int] = json.loads(path.read_text())
    return found
