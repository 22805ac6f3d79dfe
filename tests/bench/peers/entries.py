"""Who does what in a round: the programs, what they work on, and how long."""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tests.variants.choosing import ROOT

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
STEPS = 10
QUEUED = 1_000
QUEUED_SLOW = 500
"""Runs through the queue of a peer that would take more than ten seconds for all."""
OTHERS_SETTINGS = ("ABSURD_", "BELAY_", "DBOS_", "LANGCHAIN_", "LANGGRAPH_", "LANGSMITH_", "OTEL_", "PG", "RESTATE_")
"""What variables begin with that would lead a program elsewhere."""


class Ground(Enum):
    """What a program works on; each time a new one."""

    SCHEMA = "a database of PostgreSQL with belay's schema"
    DATABASE = "an empty database of PostgreSQL"
    ANALYSED = "the database of the program before, analysed"
    FILE = "the file of a SQLite database"
    FILE_URL = "the URL of such a file"
    RESTATE = "Restate's server"


@dataclass(frozen=True)
class Entry:
    """One program with its arguments; ``name`` leads the names of its figures."""

    name: str
    peer: str
    ground: Ground
    program: str
    arguments: tuple[str, ...]
    seconds: float = 0.0
    """For which it counts; none where it ends by itself."""
    warm_up: float = 0.5

    def command(self, where: str) -> list[str]:
        """The process to start, with the ground at this place."""
        python: str | Path = PEERS_PYTHON if self.program.startswith("tests.bench.peers.") else sys.executable
        place = "--sqlite" if self.ground is Ground.FILE else "--url"
        timed = ["--seconds", f"{self.seconds}", "--warm-up", f"{self.warm_up}"] if self.seconds else []
        return [str(python), "-m", self.program, place, where, *self.arguments, *timed]

    def shortened(self) -> "Entry":
        """The same, for a first look."""
        given = [
            str(min(100, int(each))) if before in {"--runs", "--queue"} else each
            for before, each in zip(("", *self.arguments), self.arguments, strict=False)
        ]
        return replace(self, arguments=tuple(given), seconds=self.seconds / 2, warm_up=self.warm_up / 2)


def _belay(name: str, ground: Ground, concurrency: int, *more: str) -> Entry:
    arguments = ("--concurrency", f"{concurrency}", "--steps", f"{STEPS}", *more)
    return Entry(f"belay_{name}", "belay", ground, "tests.bench.loop", arguments, 1.5)


def _belay_queue(name: str, *more: str) -> Entry:
    arguments = ("--runs", f"{QUEUED}", "--steps", "1", *more)
    return Entry(f"belay_{name}", "belay", Ground.SCHEMA, "tests.bench.queue", arguments)


def _floor(name: str, ground: Ground, *arguments: str) -> Entry:
    return Entry(f"floor_{name}", "floor", ground, "tests.bench.floor", arguments, 1.0, 0.3)


def _peer(name: str, ground: Ground, concurrency: int, seconds: float = 1.5, warm_up: float = 0.5) -> Entry:
    peer = name.partition("_")[0]
    arguments = ("--concurrency", f"{concurrency}", "--steps", f"{STEPS}")
    return Entry(name, peer, ground, f"tests.bench.peers.{peer}_program", arguments, seconds, warm_up)


def _peer_queue(name: str, ground: Ground, runs: int) -> Entry:
    peer = name.partition("_")[0]
    arguments = ("--queue", f"{runs}", "--steps", "1")
    return Entry(name, peer, ground, f"tests.bench.peers.{peer}_program", arguments)


ONCE = "--non-idempotent"

# What is set side by side stands side by side. Where fifty runs of a peer take seconds, it is watched for longer.
GROUPS: tuple[tuple[Entry, ...], ...] = (
    (
        _belay("pg_50", Ground.SCHEMA, 50),
        _belay("pg_50_analysed", Ground.ANALYSED, 50),
        _peer("dbos_pg_50", Ground.DATABASE, 50, 4.0, 1.0),
        _floor("pg_8", Ground.DATABASE, "--connections", "8"),
        _belay("pg_50_once", Ground.SCHEMA, 50, ONCE),
        _belay("pg_50_once_analysed", Ground.ANALYSED, 50, ONCE),
    ),
    (
        _belay("pg_1", Ground.SCHEMA, 1),
        _floor("pg_1", Ground.DATABASE, "--connections", "1"),
        _peer("dbos_pg_1", Ground.DATABASE, 1),
        _belay("pg_1_once", Ground.SCHEMA, 1, ONCE),
    ),
    (
        _belay_queue("queue"),
        _peer_queue("dbos_queue", Ground.DATABASE, QUEUED_SLOW),
        _peer_queue("absurd_queue", Ground.DATABASE, QUEUED),
        _belay_queue("queue_once", ONCE),
    ),
    (
        _belay("sqlite_50", Ground.FILE_URL, 50),
        _peer("dbos_sqlite_50", Ground.FILE_URL, 50, 4.0, 1.0),
        _belay("sqlite_50_once", Ground.FILE_URL, 50, ONCE),
    ),
    (
        _belay("sqlite_1", Ground.FILE_URL, 1),
        _floor("sqlite", Ground.FILE),
        _peer("dbos_sqlite_1", Ground.FILE_URL, 1),
        _belay("sqlite_1_once", Ground.FILE_URL, 1, ONCE),
    ),
    (
        _peer("absurd_50", Ground.DATABASE, 50, 3.0),
        _peer("langgraph_50", Ground.DATABASE, 50),
        _peer("absurd_1", Ground.DATABASE, 1),
        _peer("langgraph_1", Ground.DATABASE, 1),
    ),
    (
        _peer("restate_50", Ground.RESTATE, 50, 3.0, 1.0),
        _peer("restate_1", Ground.RESTATE, 1),
        _peer_queue("restate_queue", Ground.RESTATE, QUEUED),
    ),
)
PEERS = tuple(dict.fromkeys(each.peer for group in GROUPS for each in group))


def chosen(names: Iterable[str], *, quick: bool) -> list[list[Entry]]:
    """The groups with the entries of these, or of all; belay's own are always among them."""
    wanted = {"belay", *names} if names else set(PEERS)
    groups = [[each.shortened() if quick else each for each in group if each.peer in wanted] for group in GROUPS]
    return [group for group in groups if group]


def surroundings() -> dict[str, str]:
    """The environment every program gets: nobody's settings, and nobody is told that it ran."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS_SETTINGS)}
    return kept | {"DO_NOT_TRACK": "1", "LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
