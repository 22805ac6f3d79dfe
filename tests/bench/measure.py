"""Measures belay on a PostgreSQL of its own that keeps its promises, and on SQLite, beside the floors of the same run.

``make bench`` runs it. Every figure is the median of the rounds, each ratio that of the rounds' own ratios. A target
that is missed is shown as missed, and is no failure.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.bench import life, speed
from tests.bench.ground import Figures, Ground, Scale, load
from tests.bench.server import started
from tests.bench.targets import judged, table

Section = Callable[[Ground], Figures]

_LONGEST, _LONGEST_LONG = 690.0, 2400.0
"""Seconds of all rounds together."""

SECTIONS: dict[str, Section] = {
    "loop": speed.loop,
    "workflows": speed.workflows,
    "parts": speed.parts,
    "queue": speed.queue,
    "load": speed.load,
    "statements": speed.statements,
    "payloads": speed.payloads,
    "fan": speed.fan,
    "sqlite": speed.sqlite,
    "decisions": life.decisions,
    "kills": life.kills,
    "takeover": life.takeover,
    "history": life.history,
    "growth": life.growth,
    "claims": life.claims,
    "memory": life.memory,
}


MAIN = ("loop", "sqlite", "statements", "queue")


class Clock:
    """Keeps the whole of it short: a section that would take too long is not measured again."""

    def __init__(self, longest: float) -> None:
        self._until = time.monotonic() + longest
        self._spent: dict[str, float] = {}
        self.left_out = 0
        """How often a section was not measured again."""

    def allows(self, name: str) -> bool:
        """Whether there is time for a section, by how long it took before; the first time there is."""
        allowed = name not in self._spent or time.monotonic() + self._spent[name] < self._until
        self.left_out += not allowed
        return allowed

    def took(self, name: str, seconds: float) -> None:
        """Remember how long a section took."""
        self._spent[name] = seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write the figures."""
    given = _parsed(arguments)
    if given.json:
        # A run that breaks off must not leave the figures of an earlier one.
        given.json.unlink(missing_ok=True)
    # What was started is stopped then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    figures = measured(given.only or list(SECTIONS), given.rounds, given.scale)
    for line in ("", *table(figures), "", json.dumps(figures)):
        say(line)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def measured(names: Sequence[str], rounds: int, scale: Scale) -> Figures:
    """The figures of these sections, over so many rounds, and what there is to say of the surroundings."""
    began, before = time.monotonic(), load()
    found: list[Figures] = []
    clock = Clock(_LONGEST_LONG if scale.long else _LONGEST)
    # SQLite's files lie beside PostgreSQL's, on the same disk.
    with started() as server, TemporaryDirectory(prefix="belay-bench-") as folder:
        ground = Ground(server, Path(folder), scale, rounds)
        # What has the main targets has all its rounds first, whatever time is left then.
        for group in ([each for each in names if each in MAIN], [each for each in names if each not in MAIN]):
            for number in range(1, rounds + 1 if group else 1):
                ground.round = number
                found.append(one_round(ground, group, clock))
        version = str(server.ask("SHOW server_version_num")[0][0])
    figures = medians(found)
    judgements = [met for _, _, met in judged(figures)]
    return figures | {
        "postgresql_version": float(version),
        "rounds": rounds,
        "targets": len(judgements),
        "missed": judgements.count(False),
        "left_out": clock.left_out,
        "load_before": before,
        "load_most": max(ground.loads, default=before),
        "seconds": round(time.monotonic() - began, 1),
    }


def one_round(ground: Ground, names: Sequence[str], clock: Clock) -> Figures:
    """These sections, each with its floors; every second round takes them from the last to the first."""
    figures: Figures = {}
    for name in names if ground.round % 2 else reversed(names):
        which = f"round {ground.round} of {ground.rounds}  {name:12}"
        if not clock.allows(name):
            say(f"{which}left out: it would take too long")
            continue
        began = time.monotonic()
        figures |= SECTIONS[name](ground)
        clock.took(name, spent := time.monotonic() - began)
        say(f"{which}{spent:6.1f} s   load {load():.1f}")
    return figures


def medians(rounds: Sequence[Figures]) -> Figures:
    """Of each figure the median of the rounds that have it, in the order of the first round."""
    names = dict.fromkeys(name for each in rounds for name in each)
    return {name: round(median(each[name] for each in rounds if name in each), 4) for name in names}


def say(line: str) -> None:
    """A line for whoever waits."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), metavar="NAME", help=f"of {' '.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round: to see that all of it works")
    parser.add_argument("--long", action="store_true", help="a million runs, and leases that lapse, too: half an hour")
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error("--rounds: at least 1")
    given.scale = Scale(0.3, 0.2, quick=True) if given.quick else Scale(long=given.long)
    given.rounds = 1 if given.quick else given.rounds
    return given


if __name__ == "__main__":
    sys.exit(main())
