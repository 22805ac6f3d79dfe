"""belay beside other libraries: the same work, in turns, round after round, on one PostgreSQL that keeps its promises.

``make bench-peers`` runs it, with the peers' environment made before. It ends with 1 where a peer was not measured,
Restate aside, whose server not every machine can have.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.peers.entries import PEERS, PEERS_PYTHON, Entry, Ground, chosen, surroundings
from tests.bench.peers.figures import Figures, summed, table
from tests.bench.peers.machine import described
from tests.bench.peers.plot import drawn
from tests.bench.peers.restate_server import fetched, locked, restate
from tests.bench.server import Server, started
from tests.variants.choosing import ROOT
from tests.variants.versions import Missing

PATIENCE = 90
"""Seconds one program may take."""
MAIN = ("steps_per_s", "runs_per_s", "commits_per_s")
"""The figure of a program that is shown while it goes on."""


class Comparison:
    """The rounds, and what could not be measured."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._environment = surroundings()
        self._places = 0
        self._before = ""
        self.rounds: list[dict[str, dict[str, float]]] = []
        self.missing: dict[str, str] = {}
        """Why, by entry."""

    def round(self, groups: Sequence[Sequence[Entry]]) -> None:
        """One more round; every second one takes the groups from the last to the first."""
        turn = groups if len(self.rounds) % 2 == 0 else groups[::-1]
        self.rounds.append({})
        for group in turn:
            try:
                self._group(group)
            except Missing as missing:
                self.missing |= {each.name: str(missing) for each in group}
                say(f"{group[0].peer}: not measured: {missing}")

    def _group(self, group: Sequence[Entry]) -> None:
        with ExitStack() as stack:
            if any(each.ground is Ground.RESTATE for each in group):
                self._before = stack.enter_context(restate(fetched(), peers_python(), self._environment))
            for entry in group:
                if entry.name not in self.missing:
                    self._measure(entry)

    def _measure(self, entry: Entry) -> None:
        try:
            figures = self._run(entry.command(self._place(entry)))
        except Missing as missing:
            self.missing[entry.name] = str(missing)
            say(f"round {len(self.rounds)}  {entry.name:26} not measured: {missing}")
            return
        self.rounds[-1][entry.name] = figures
        shown = next(each for each in MAIN if each in figures)
        say(f"round {len(self.rounds)}  {entry.name:26}{figures[shown]:>12,.1f} {shown:14} load {figures['load']:.1f}")

    def _run(self, command: Sequence[str]) -> dict[str, float]:
        """What a program printed in the end. Raises ``Missing`` where it did not get there."""
        if not Path(command[0]).exists():
            peers_python()
        try:
            done = subprocess.run(
                command, check=False, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            raise Missing(f"it took more than {PATIENCE} s") from None
        if done.returncode:
            raise Missing(f"it ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures

    def _place(self, entry: Entry) -> str:
        """Where the program works, as it takes it."""
        self._places += 1
        match entry.ground:
            case Ground.SCHEMA:
                self._before = self._server.database()
            case Ground.DATABASE:
                return self._server.create_database(f"peer_{self._places}")
            case Ground.ANALYSED:
                self._server.ask("ANALYZE", self._before)
            case Ground.FILE:
                return str(self._folder / f"{self._places}.db")
            case Ground.FILE_URL:
                return f"sqlite:///{self._folder}/{self._places}.db"
            case Ground.RESTATE:
                pass
        return self._before


def peers_python() -> Path:
    """The interpreter of the peers' environment. Raises ``Missing``."""
    if not PEERS_PYTHON.exists():
        raise Missing(f"there is no {PEERS_PYTHON.parents[1].name}: `make bench-peers` makes it")
    return PEERS_PYTHON


def compared(names: Sequence[str], rounds: int, *, quick: bool) -> tuple[Figures, dict[str, str]]:
    """The figures of so many rounds, and why what is missing is missing, by entry."""
    began, load = time.monotonic(), os.getloadavg()[0]
    groups = chosen(names, quick=quick)
    # SQLite's files lie beside PostgreSQL's, on the same disk.
    with started() as server, TemporaryDirectory(prefix="belay-peers-") as folder:
        comparison = Comparison(server, Path(folder))
        machine = described(Path(folder))
        machine["postgresql"] = str(server.ask("SHOW server_version")[0][0]).split()[0]
        for _ in range(rounds):
            comparison.round(groups)
    loads = [figures["load"] for each in comparison.rounds for figures in each.values()]
    figures = summed(comparison.rounds) | machine
    figures |= {"rounds": float(rounds), "load_before": round(load, 2), "load_most": max(loads, default=load)}
    figures |= {"version_restate-server": locked().version} if "restate_50_ratio" in figures else {}
    figures["seconds"] = round(time.monotonic() - began, 1)
    return figures, comparison.missing


def say(line: str) -> None:
    """A line for whoever waits."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers.compare", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go, and beside it the plot")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], choices=PEERS, help="beside belay; may be repeated")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that all of it works")
    given = parser.parse_args(arguments)
    # What was started is stopped then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    figures, missing = compared(given.only, 1 if given.quick else given.rounds, quick=given.quick)
    figures |= {f"not_measured_{name}": why for name, why in missing.items()}
    for line in ("", *table(figures)):
        say(line)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
        given.json.with_suffix(".svg").write_text(drawn(figures))
    return 1 if any(not name.startswith("restate") for name in missing) else 0


if __name__ == "__main__":
    sys.exit(main())
