"""Where the figures are taken: a server, a folder, and programs in processes of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.bench.apart import ROOT
from tests.bench.server import Server

Figures: TypeAlias = dict[str, float]

PATIENCE = 60
"""Seconds one program may take."""
_FLUSHED = 5.0
"""Seconds the server may take to add up what connections that have ended did."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How long and how much."""

    seconds: float = 1.0
    """For which a loop is counted."""
    warm_up: float = 0.4
    quick: bool = False
    """Whether only the main figures are wanted, briefly."""
    long: bool = False
    """Whether what takes minutes is wanted too."""

    def some(self, number: int) -> int:
        """A number of things, or a tenth of them where it has to be quick."""
        return max(1, number // 10) if self.quick else number


class Ground:
    """The surroundings of one round."""

    def __init__(self, server: Server, folder: Path, scale: Scale, rounds: int) -> None:
        self.server, self.folder, self.scale, self.rounds = server, folder, scale, rounds
        self.round = 1
        self.loads: list[float] = []
        self._files = 0
        self._templates: dict[str, str] = {}

    @property
    def first(self) -> bool:
        """Whether this is the first round: what is taken once is taken now."""
        return self.round == 1

    def run(self, program: str, *arguments: object, patience: float = PATIENCE) -> Any:
        """What a program of this folder prints in the end."""
        command = [sys.executable, "-m", f"tests.bench.{program}", *map(str, arguments)]
        try:
            done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=patience)
        except subprocess.TimeoutExpired as expired:
            said = (expired.stderr or b"").decode()[-2000:]
            raise SystemExit(f"{' '.join(command[1:])} took more than {patience:.0f} s: {said}") from None
        if done.returncode:
            raise SystemExit(f"{' '.join(command[1:])} ended with {done.returncode}: {done.stderr[-2000:]}")
        reported = json.loads(done.stdout.splitlines()[-1])
        self.loads.append(reported["load"])
        return reported

    def loop(self, url: str, concurrency: int, *arguments: object, steps: int = 10) -> Any:
        """The figures of a closed loop."""
        lasting = ("--seconds", self.scale.seconds, "--warm-up", self.scale.warm_up)
        reported = (*lasting, *(() if url.startswith("sqlite") else ("--postmaster", self.server.pid)), *arguments)
        return self.run("loop", "--url", url, "--concurrency", concurrency, "--steps", steps, *reported)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new database, empty and never analysed, which is gone afterwards."""
        url = self.server.database()
        try:
            yield url
        finally:
            self.server.drop(url)

    @contextmanager
    def filled(self, script: str) -> Iterator[str]:
        """The URL of a new database in which this script has been run, never analysed; gone afterwards."""
        if script not in self._templates:
            template = self.server.database()
            self.server.do(script, template)
            self._templates[script] = template.rpartition("/")[2]
        url = self.server.database(self._templates[script])
        try:
            yield url
        finally:
            self.server.drop(url)

    def file(self) -> Path:
        """A file that is not there yet."""
        self._files += 1
        return self.folder / f"{self._files}.db"


@dataclass
class Counts:
    """What a server has done: for one database, statements and commits; for all, bytes of its log."""

    commits: float
    statements: float | None
    """None where the server does not count them."""
    step_statements: float | None
    """Of these, those that write attempts."""
    wal_bytes: float

    def combined(self, other: "Counts", one: Callable[[float, float], float]) -> "Counts":
        """Each count with the other's; None with None."""

        def both(this: float | None, that: float | None) -> float | None:
            return None if this is None or that is None else one(this, that)

        return Counts(
            one(self.commits, other.commits),
            both(self.statements, other.statements),
            both(self.step_statements, other.step_statements),
            one(self.wal_bytes, other.wal_bytes),
        )


def counts(server: Server, url: str) -> Counts:
    """The counts of a database so far, once nobody is connected to it any more."""
    name = url.rpartition("/")[2]
    until = time.monotonic() + _FLUSHED
    while server.ask(f"SELECT 1 FROM pg_stat_activity WHERE datname = '{name}'") and time.monotonic() < until:  # noqa: S608
        time.sleep(0.02)
    statements = step_statements = None
    if server.counts_statements:
        kept = f"FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = '{name}'"
        statements = server.ask(f"SELECT coalesce(sum(calls), 0)::float8 {kept}")[0][0]
        writes = "s.query ~* '(INSERT INTO|UPDATE) belay_attempts'"
        step_statements = server.ask(f"SELECT coalesce(sum(calls), 0)::float8 {kept} AND {writes}")[0][0]
    commits = server.ask(f"SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = '{name}'")[0][0]  # noqa: S608
    wal = server.ask("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8")[0][0]
    return Counts(commits, statements, step_statements, wal)


def load() -> float:
    """How many processes want a processor, over the last minute."""
    return round(os.getloadavg()[0], 2)
