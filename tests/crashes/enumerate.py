"""Kills a process at every boundary of every scenario, on both databases, and has another one go on.

``make crashes`` runs it. It fails where a run is lost, or something is done twice that must not be.
"""

import argparse
import gc
import json
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from belay_core.ids import Uuid7Ids
from belay_drivers.postgres import migrate_postgres
from belay_drivers.sqlite import migrate_sqlite
from belay_testing.crashes.effect_log import EffectLog
from belay_testing.crashes.forked_process import Ended, forked
from belay_testing.postgres_server import PostgresServer, run_apart
from tests.crashes import playing
from tests.crashes.judging import Verdict, judge
from tests.crashes.planted import PLANTED
from tests.crashes.scenarios import SCENARIOS, Scenario, World
from tests.crashes.shares import Share, add_share, share_of

DRIVERS = ("sqlite", "postgres")


@dataclass
class Tally:
    """What came of the points of one driver."""

    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def note(self, where: str, verdict: Verdict) -> None:
        self.counts["points"] += 1
        self.counts["recovered"] += verdict.state == "completed" and not verdict.lost
        self.counts["needs_review"] += verdict.state == "needs_review" and not verdict.lost
        self.counts["lost"] += bool(verdict.lost)
        self.counts["double"] += bool(verdict.double)
        self.counts["duplicates"] += verdict.duplicates
        self.broken += [f"{where}: {each}" for each in (*verdict.lost, *verdict.double)]


class Enumeration:
    """The points of one driver."""

    def __init__(self, url: str, driver: str, planted: str | None) -> None:
        self.url, self.driver, self.planted = url, driver, planted
        self.tally = Tally()
        self._numbers = count()

    def run(self, scenario: Scenario, share: Share) -> int:
        """Kill at every boundary of a scenario that falls into the share; how many boundaries there are."""
        names, expected = self._undisturbed(scenario)
        for at in range(1, len(names) + 1):
            if share.has():
                self._point(scenario, at, names[at - 1], expected)
        return len(names)

    def _undisturbed(self, scenario: Scenario) -> tuple[list[str], set[str]]:
        run_id = self._begun(scenario)
        ended = forked(lambda: self._victim(scenario, run_id, 0))
        if ended.trouble or ended.killed:
            raise SystemExit(f"{scenario.name} on {self.driver} does not end undisturbed: {ended.trouble}")
        return ended.value, {each.key for each in World.ledger.effects(run_id)}

    def _begun(self, scenario: Scenario) -> str:
        run_id = f"{self.driver}-{scenario.name}-{next(self._numbers):04}"
        if scenario.killed_before and not forked(lambda: self._victim(scenario, run_id, 0)).killed:
            raise SystemExit(f"{scenario.name} on {self.driver}: the first process did not die")
        return run_id

    def _victim(self, scenario: Scenario, run_id: str, at: int) -> Any:
        return playing.victim(self.url, scenario, run_id, at, self.planted)

    def _point(self, scenario: Scenario, at: int, name: str, expected: set[str]) -> None:
        run_id = self._begun(scenario)
        where = f"{self.driver} {scenario.name}, killed at {at} ({name})"
        victim = forked(lambda: self._victim(scenario, run_id, at))
        if not victim.killed:
            # Where the world answers in its own time, an execution may meet fewer boundaries than were counted.
            if victim.trouble:
                self.tally.note(where, Verdict("unknown", lost=(victim.trouble,)))
            return
        self.tally.note(where, self._judged(scenario, run_id, expected))

    def _judged(self, scenario: Scenario, run_id: str, expected: set[str]) -> Verdict:
        reported: Ended = forked(lambda: playing.survivor(self.url, scenario, run_id))
        if reported.trouble or reported.killed:
            return Verdict("unknown", lost=(f"the survivor ended: {reported.trouble or 'killed'}",))
        return judge(scenario, reported.value, World.ledger.effects(run_id), expected)


@contextmanager
def databases(folder: Path, drivers: list[str]) -> Iterator[dict[str, str]]:
    """A fresh database of each kind, the schema applied."""
    urls = {}
    if "sqlite" in drivers:
        path = folder / "belay.db"
        run_apart(migrate_sqlite(str(path)))
        urls["sqlite"] = f"sqlite:///{path}"
    if "postgres" not in drivers:
        yield urls
        return
    with PostgresServer() as server:
        name = f"belay_crashes_{Uuid7Ids().nonce()}"
        urls["postgres"] = server.create_database(name)
        run_apart(migrate_postgres(urls["postgres"]))
        try:
            yield urls
        finally:
            server.drop_database(name)


def main(arguments: list[str] | None = None) -> int:
    """Enumerate, print a table, and say whether all is as it should be."""
    given = _parsed(arguments)
    if given.json:
        # A run that breaks off must not leave the figures of an earlier one.
        given.json.unlink(missing_ok=True)
    logging.disable(logging.CRITICAL)
    # So that what was made is removed, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    warmed()
    shared = Path("/dev/shm")  # noqa: S108  (mkdtemp makes a private folder below it)
    folder = Path(tempfile.mkdtemp(prefix="belay-crashes-", dir=shared if shared.is_dir() else None))
    World.folder, World.ledger = folder, EffectLog(folder / "ledger")
    try:
        with databases(folder, given.drivers) as urls:
            tallies = {driver: enumerated(driver, url, given) for driver, url in urls.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return reported(tallies, given.json)


def warmed() -> None:
    """Have everything in memory that a process would have to import or to make."""
    import_module("aiosqlite")
    for scenario in SCENARIOS.values():
        _ = scenario.flow.input_codec, scenario.flow.result_codec
    gc.freeze()


def enumerated(driver: str, url: str, given: argparse.Namespace) -> Tally:
    """The points of all scenarios on one driver; a line is printed for each scenario."""
    made = Enumeration(url, driver, given.planted)
    for name in given.scenarios:
        began, before = time.monotonic(), Counter(made.tally.counts)
        boundaries = made.run(SCENARIOS[name], given.share)
        spent, found = time.monotonic() - began, made.tally.counts - before
        made.tally.seconds += spent
        say(
            f"{driver:9}{name:10}{boundaries:5} boundaries{found['points']:6} killed{found['recovered']:6} completed"
            f"{found['needs_review']:5} to review{found['duplicates']:5} repeated{found['lost']:4} lost"
            f"{found['double']:4} double{spent:7.1f} s"
        )
    return made.tally


def reported(tallies: dict[str, Tally], file: Path | None) -> int:
    """Print and write the figures."""
    figures: dict[str, float] = {
        name: sum(tally.counts[name] for tally in tallies.values())
        for name in ("points", "recovered", "needs_review", "lost", "double", "duplicates")
    }
    for driver, tally in tallies.items():
        for name in ("points", "needs_review", "lost", "double"):
            figures[f"{driver}_{name}"] = tally.counts[name]
    figures["seconds"] = round(sum(tally.seconds for tally in tallies.values()), 1)
    for tally in tallies.values():
        for line in tally.broken[:20]:
            say(f"BROKEN {line}")
    say(json.dumps(figures))
    if file:
        file.write_text(json.dumps(figures) + "\n")
    return int(figures["lost"] > 0 or figures["double"] > 0 or figures["points"] == 0)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make crashes", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--drivers", nargs="+", choices=DRIVERS, default=list(DRIVERS))
    parser.add_argument("--scenarios", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--planted", choices=sorted(PLANTED), help="break the engine, to see it found")
    add_share(parser)
    given = parser.parse_args(arguments)
    given.share = share_of(given)
    return given


if __name__ == "__main__":
    sys.exit(main())
