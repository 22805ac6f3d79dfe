"""What is published, built as an index gets it, and what has to be in it."""

import email
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "belay_core": ".",
    "belay_drivers": ".",
    "belay_integrations": ".",
    "belay_testing": ".",
    "belay_invoices": "examples/invoices",
}
"""The packages of the wheel, and where each is in the project."""


def build(project: Path, folder: Path, kind: str) -> Path:
    """A ``wheel`` or an ``sdist`` of a project, without asking any index; the tool is the one that is installed."""
    before = set(folder.glob("*"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, check=False, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, f"{project.name} cannot be built:\n{done.stderr}"
    [built] = set(folder.glob("*")) - before
    return built


def unpack(sdist: Path, folder: Path) -> Path:
    """The project as it is in an sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [project] = folder.iterdir()
    return project


def shortcomings(wheel: Path, project: Path) -> list[str]:
    """What is wrong with a wheel that was built from this project; nothing if it is as it should be."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata_name] = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(metadata_name))
    info = metadata_name.rpartition("/")[0]
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    wanted = {
        path.relative_to(project / folder).as_posix()
        for package, folder in PACKAGES.items()
        for path in (project / folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    given = {name for name in names if not name.startswith(f"{info}/")}
    required = metadata.get_all("Requires-Dist", [])
    migrations = {Path(name).parts[1] for name in given if name.endswith(".sql")}
    return [
        *(f"not in the wheel: {name}" for name in sorted(wanted - given)),
        *(f"does not belong in the wheel: {name}" for name in sorted(given - wanted)),
        *(f"no types: {package}" for package in PACKAGES if f"{package}/py.typed" not in given),
        *(f"no migrations: {driver}" for driver in sorted({"postgres", "sqlite"} - migrations)),
        *(f"no {name}" for name in (f"{info}/licenses/LICENSE", f"{info}/entry_points.txt") if name not in names),
        *differing("extras", metadata.get_all("Provides-Extra", []), declared["optional-dependencies"]),
        *differing("requirements", [each for each in required if "extra ==" not in each], declared["dependencies"]),
    ]


def differing(what: str, given: list[str], wanted: list[str] | dict[str, object]) -> list[str]:
    """One line where these are not the same, in any order."""
    same = sorted(given) == sorted(wanted)
    return [] if same else [f"{what}: {sorted(given)} instead of {sorted(wanted)}"]
