"""Breaks what can break, for real: owners, connections, processes and the server, and counts what it did to the data.

``make faults`` runs it. It fails where anything acknowledged is lost, done twice, or answered wrongly.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from unittest.mock import patch

from belay_drivers.postgres import migrate_postgres, open_postgres
from belay_drivers.sql.stores.base import _LeaseState
from belay_drivers.sqlite import open_sqlite
from belay_testing.postgres_server import PostgresServer
from tests.faults.cut_commits import cut_commits
from tests.faults.killed_writers import killed_writers
from tests.faults.machine import losing
from tests.faults.migrators import migrators
from tests.faults.restarts import restarts, terminations
from tests.faults.takeovers import takeovers

EXAMPLES = 12
"""Histories of some fifty commands that store and reference are asked alike."""

Figures: TypeAlias = Mapping[str, float]


class Ground:
    """Where the proofs take place: a folder, and servers that are started when they are needed."""

    def __init__(self, stack: ExitStack, share: float) -> None:
        self.folder = Path(stack.enter_context(TemporaryDirectory()))
        self._stack, self._share = stack, share
        self._servers: dict[bool, PostgresServer] = {}
        self._databases = 0

    def server(self, *, durable: bool = False) -> PostgresServer:
        """A server of its own; a durable one keeps what it has committed when it is stopped at once."""
        if durable not in self._servers:
            self._servers[durable] = self._stack.enter_context(PostgresServer(durable=durable))
        return self._servers[durable]

    def database(self, *, durable: bool = False, empty: bool = False) -> str:
        """The URL of a new database, with the schema unless it is to be empty."""
        self._databases += 1
        url = self.server(durable=durable).create_database(f"faults_{self._databases}")
        if not empty:
            asyncio.run(migrate_postgres(url))
        return url

    def some(self, number: int) -> int:
        """The share of this number that is asked for, at least one."""
        return max(1, round(number * self._share))


def _takeovers(ground: Ground) -> tuple[Figures, list[str]]:
    path, url = ground.folder / "takeovers.db", ground.database()
    file = asyncio.run(takeovers(lambda clock: open_sqlite(path, clock=clock), ground.some(200)))
    server = asyncio.run(takeovers(lambda clock: open_postgres(url, clock=clock), ground.some(800)))
    figures = {
        "takeovers": file.takeovers + server.takeovers,
        "owner_writes_accepted": file.accepted + server.accepted,
        "owner_writes_refused": file.refused + server.refused,
        "stale_accepted": len(file.stale) + len(server.stale),
    }
    return figures, file.stale + server.stale


def _planted(ground: Ground) -> tuple[Figures, list[str]]:
    url = ground.database()
    found = asyncio.run(takeovers(lambda clock: open_postgres(url, clock=clock), ground.some(20), fenced=False))
    wrong = [] if found.stale else ["a fence that is only read was not found out"]
    return {"planted_takeovers": found.takeovers, "planted_stale_found": len(found.stale)}, wrong


def _cuts(ground: Ground) -> tuple[Figures, list[str]]:
    found = asyncio.run(cut_commits(ground.database(), ground.database(), ground.some(200)))
    return {"cuts": found.cuts, "resolved": found.resolved, "wrong": len(found.wrong)}, found.wrong


def _kills(ground: Ground) -> tuple[Figures, list[str]]:
    found = killed_writers(ground.folder / "kills.db", ground.some(200))
    figures = {
        "kills": found.kills,
        "kill_writes_acknowledged": found.acknowledged,
        "acknowledged_lost": found.lost,
        "torn": len(found.torn),
        "corrupt": len(found.corrupt),
        "ambiguous": found.ambiguous,
        "ambiguous_resolved": found.resolved,
    }
    unresolved = [] if found.resolved == found.ambiguous else ["an ambiguous write was not resolved"]
    lost = ["an acknowledged write is lost"] * bool(found.lost)
    return figures, [*lost, *found.torn, *found.corrupt, *unresolved]


def _migrators(ground: Ground) -> tuple[Figures, list[str]]:
    number = ground.some(40)
    found = [migrators(url, number) for url in (f"sqlite:///{ground.folder}/new.db", ground.database(empty=True))]
    figures = {
        "migrators": number,
        "migrated_ok": min(each.ok for each in found),
        "appliers": max(each.appliers for each in found),
    }
    wrong = [error for each in found for error in each.errors]
    if any(each.ok < number or each.appliers != 1 for each in found):
        wrong.append("not every one succeeded, or not just one applied anything")
    return figures, wrong


def _terminations(ground: Ground) -> tuple[Figures, list[str]]:
    found = asyncio.run(terminations(ground.database(durable=True), ground.some(200)))
    wrong = found.lost + found.wrong
    return {
        "terminations": found.broken,
        "termination_writes_acknowledged": found.acknowledged,
        "termination_wrong": len(wrong),
    }, wrong


def _restarts(ground: Ground) -> tuple[Figures, list[str]]:
    found = asyncio.run(restarts(ground.server(durable=True), ground.database(durable=True), ground.some(5)))
    figures = {
        "restarts": found.broken,
        "restart_writes_acknowledged": found.acknowledged,
        "restart_acknowledged_lost": len(found.lost),
        "restart_resumed": found.resumed,
        "restart_wrong": len(found.wrong),
    }
    return figures, found.lost + found.wrong


def _model(ground: Ground) -> tuple[Figures, list[str]]:
    try:
        met = losing(ground.database(), ground.some(EXAMPLES))
    except AssertionError as error:
        return {"model_answers": 0, "model_differs": 1}, [str(error)]
    planted = 0
    with patch.object(_LeaseState, "arrived", lambda *_: False):
        try:
            losing(ground.database(), ground.some(EXAMPLES))
        except AssertionError:
            planted = 1
    figures = {
        "model_examples": ground.some(EXAMPLES),
        "model_answers": len(met),
        "model_differs": 0,
        "model_planted_found": planted,
    }
    return figures, [] if planted else ["a store that forgets its lost commits was not found out"]


PROOFS: dict[str, Callable[[Ground], tuple[Figures, list[str]]]] = {
    "takeovers": _takeovers,
    "planted": _planted,
    "cuts": _cuts,
    "kills": _kills,
    "migrators": _migrators,
    "terminations": _terminations,
    "restarts": _restarts,
    "model": _model,
}


def main(arguments: list[str] | None = None) -> int:
    """Do the proofs, print what was found, and say whether all is as it should be."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--share", type=float, default=1.0, metavar="PART", help="of each proof only this part")
    parser.add_argument("--only", choices=sorted(PROOFS), action="append", help="only this proof; may be repeated")
    given = parser.parse_args(arguments)
    if given.json:
        # A run that breaks off must not leave the figures of an earlier one.
        given.json.unlink(missing_ok=True)
    began, failed = time.monotonic(), 0
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        ground = Ground(stack, given.share)
        for name in given.only or PROOFS:
            started = time.monotonic()
            found, wrong = PROOFS[name](ground)
            failed += bool(wrong)
            figures.update(found)
            _say(name, found, wrong, time.monotonic() - started)
    figures |= {"failed": failed, "seconds": round(time.monotonic() - began, 1)}
    sys.stdout.write(json.dumps(figures) + "\n")
    if given.json:
        given.json.write_text(json.dumps(figures) + "\n")
    return int(failed > 0)


def _say(name: str, found: Figures, wrong: list[str], seconds: float) -> None:
    sys.stdout.write(f"{'BROKEN' if wrong else 'holds':7} {name}, {seconds:.1f} s\n")
    for figure, value in found.items():
        sys.stdout.write(f"        {value:>7}  {figure.replace('_', ' ')}\n")
    for each in wrong[:10]:
        sys.stdout.write(f"                 {each}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
