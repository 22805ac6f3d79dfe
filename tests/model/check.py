"""Checks the ownership protocol: every state of the worlds it has to hold in, and a counterexample to each fault.

``make model`` runs it. It fails where a promise breaks, or a planted fault is not caught.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from tests.model.exploring import Explored, explore
from tests.model.planted import PLANTED, SOUND, TWO_LATE


def main(arguments: list[str] | None = None) -> int:
    """Explore, print what was found, and say whether all is as it should be."""
    parser = argparse.ArgumentParser(prog="make model", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--deep", action="store_true", help="explore two late statements at a time as well")
    given = parser.parse_args(arguments)
    if given.json:
        # A run that breaks off must not leave the figures of an earlier one.
        given.json.unlink(missing_ok=True)
    began = time.monotonic()
    worlds = SOUND | ({"two late statements": TWO_LATE} if given.deep else {})
    found = {name: explore(setting) for name, setting in worlds.items()}
    for name, explored in found.items():
        _say(f"{'broken' if explored.broken else 'holds':7} {explored.states:7} states  {name}", explored)
    caught = 0
    for name, fault in PLANTED.items():
        explored = explore(fault.setting)
        right = explored.broken == fault.breaks
        caught += right
        _say(f"{'caught' if right else 'MISSED':7} {explored.states:7} states  {name}: {explored.broken}")
    figures = {
        "states": sum(explored.states for explored in found.values()),
        "planted": len(PLANTED),
        "caught": caught,
        "seconds": round(time.monotonic() - began, 1),
    }
    _say(json.dumps(figures))
    if given.json:
        given.json.write_text(json.dumps(figures) + "\n")
    return int(caught < len(PLANTED) or any(explored.broken for explored in found.values()))


def _say(line: str, explored: Explored | None = None) -> None:
    path = () if explored is None else explored.path
    sys.stdout.write("\n        ".join((line, *path)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
