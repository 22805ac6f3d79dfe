"""belay as a stranger has it: built, installed where nothing else is, with a driver and a project of other people.

``make downstream`` runs it. It fails where the wheel is not what it should be, where the driver of ``downstream`` is
not found or does not keep the contract, and where the project of ``downstream`` does not pass its tests and mypy.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.downstream.building import ROOT, build, shortcomings, unpack
from tests.downstream.foreign import Foreign, figures, make_venv, pinned

NEEDED = ("belay-core (pyproject.toml)", "mypy")
"""What a stranger installs, in the spelling of the lock."""
FINDS = """
import asyncio, sys
from importlib.metadata import entry_points
from belay_core import open_stores
from belay_core.errors import RunStoreError

async def opened():
    async with open_stores("jsonl:///found.jsonl") as stores:
        try:
            await stores.runs.get("missing")
        except RunStoreError as error:
            return error.code

assert "belay_jsonl" not in sys.modules
assert asyncio.run(opened()) == "not_found_row"
assert "belay_jsonl.run_store" in sys.modules
print(sum(point.value.startswith("belay_jsonl:") for point in entry_points(group="belay.drivers")))
"""


def copied(project: str, folder: Path) -> Path:
    """A project of ``downstream``, without what tools have left there."""
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
    return Path(shutil.copytree(ROOT / "downstream" / project, folder / project, ignore=ignored))


def demonstrated(foreign: Foreign) -> dict[str, int]:
    """The figures of ``belay demo`` as it is installed; fails where its samples are not booked as they should be."""
    where = foreign.run("python", "-c", "import belay_invoices; print(belay_invoices.__file__)")
    assert Path(where.strip()).is_relative_to(foreign.folder / "venv"), where
    assert "  demo " in foreign.run("belay", "--help"), "the demo is not listed"
    said = foreign.run("belay", "demo", "--approve", "all", "--json", TMPDIR=str(foreign.folder))
    [line] = [line for line in said.splitlines() if line.startswith("{")]
    seen: dict[str, int] = json.loads(line)
    assert seen["runs"] == seen["completed"] + seen["stopped"] > 0, seen
    assert (seen["posted_twice"], seen["posted"]) == (0, seen["completed"]), seen
    return seen


def check(folder: Path) -> dict[str, int]:
    built, sources = folder / "built", folder / "sources"
    built.mkdir()
    sdist = build(ROOT, built, "sdist")
    project = unpack(sdist, sources)
    wheel = build(project, built, "wheel")
    wrong = shortcomings(wheel, project)
    assert wrong == [], "\n".join(wrong)

    driver, consumer = copied("belay-jsonl", folder), copied("consumer", folder)
    others = [build(each, built, "wheel") for each in (driver, consumer)]
    foreign = Foreign(folder, make_venv(folder / "venv"), ROOT)
    locked = (ROOT / "requirements" / "dev.txt").read_text()
    foreign.install(pinned(locked, *NEEDED), wheel, *others)
    for each in (driver, consumer):
        foreign.run("mypy", folder=each)
    # What runs from here on is what was installed.
    shutil.rmtree(driver / "belay_jsonl")
    shutil.rmtree(consumer / "letters")
    shutil.rmtree(sources)

    found = int(foreign.run("python", "-c", FINDS))
    demo = demonstrated(foreign)
    consumer_tests = foreign.test(consumer)
    report = folder / "conformance.json"
    driver_tests = foreign.test(driver, "--belay-conformance", report)
    shown = figures(report)
    return {
        "wheel_bytes": wheel.stat().st_size,
        "sdist_bytes": sdist.stat().st_size,
        "found_by_entry_point": found,
        "demo_runs": demo["runs"],
        "demo_posted": demo["posted"],
        "consumer_tests": consumer_tests,
        "driver_tests": driver_tests - shown["tests"],
        "conformance_tests": shown["tests"],
        "gaps": shown["gaps"],
        "outcomes_seen": shown["outcomes_seen"],
        "outcomes_possible": shown["outcomes_possible"],
        "lockstep_seeds": shown["lockstep_seeds"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as one flat object")
    given = parser.parse_args()
    begun = time.monotonic()
    with TemporaryDirectory(prefix="belay-downstream-") as folder:
        try:
            seen = check(Path(folder).resolve())
        except AssertionError as failure:
            sys.stderr.write(f"{failure}\n")
            return 1
    seen["seconds"] = round(time.monotonic() - begun)
    for name, number in seen.items():
        sys.stdout.write(f"{name.replace('_', ' '):>20} {number}\n")
    if given.json:
        given.json.write_text(json.dumps(seen) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
