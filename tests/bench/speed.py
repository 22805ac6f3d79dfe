"""Figures of speed: steps, runs, queues, load, and what they cost of processors, statements and the log."""

from collections.abc import Callable
from operator import sub
from typing import Any

from tests.bench.ground import Counts, Figures, Ground, counts

KINDS = {"": (), "non_idempotent_": ("--non-idempotent",)}
"""What stands before a figure's name, and what programs are told."""
_TOLD = ("steps_per_s", "workflows_per_s", "step_p50_ms", "step_p99_ms", "client_us_per_step", "server_us_per_step")
_TOLD_OF_FLOORS = ("commits_per_s", "p50_ms", "p99_ms", "client_us", "server_us")
_TOLD_OF_RECORDS = ("records_per_s", "client_us_per_record")
_FLOORS = {1: 1, 50: 8}
"""The connections of asyncpg so many runs are compared with."""
_LONE_STEPS = 300
"""Steps of a run whose start and end are to count for little."""


def loop(ground: Ground) -> Figures:
    """Ten steps a run, at 1, 8, 50 and 200 runs, with their floors; alone and at 50 also with the tables analysed."""
    figures: Figures = {}
    for concurrency in (1, 50) if ground.scale.quick else (1, 8, 50, 200):
        if concurrency in _FLOORS:
            figures |= _floor(ground, _FLOORS[concurrency])
        for kind, reported in KINDS.items():
            with ground.database() as url:
                _add(figures, f"{kind}pg_{concurrency}", ground.loop(url, concurrency, *reported))
                if concurrency in _FLOORS and not ground.scale.quick:
                    ground.server.ask("ANALYZE", url)
                    _add(figures, f"{kind}analysed_pg_{concurrency}", ground.loop(url, concurrency, *reported))
    for kind in KINDS:
        for state in ("", "analysed_"):
            figures |= _against_floors(figures, kind + state)
    return figures


def _floor(ground: Ground, connections: int) -> Figures:
    """What one durable write takes without belay, taken just before what it is compared with."""
    figures: Figures = {}
    lasting = ("--seconds", ground.scale.seconds, "--postmaster", ground.server.pid)
    with ground.database() as url:
        reported = ground.run("floor", "--url", url, "--connections", connections, *lasting)
    _add(figures, f"floor_pg_{connections}", reported, _TOLD_OF_FLOORS)
    return figures


def _against_floors(figures: Figures, lead: str) -> Figures:
    if f"{lead}pg_50_steps_per_s" not in figures:
        return {}
    lone = figures[f"{lead}pg_1_step_p50_ms"]
    return {
        f"{lead}lone_step_p50_over_asyncpg": lone / figures["floor_pg_1_p50_ms"],
        f"{lead}lone_step_p99_above_asyncpg_ms": figures[f"{lead}pg_1_step_p99_ms"] - figures["floor_pg_1_p99_ms"],
        f"{lead}pg_50_over_asyncpg_8": figures[f"{lead}pg_50_steps_per_s"] / figures["floor_pg_8_commits_per_s"],
        f"{lead}step_p99_ms_50": figures[f"{lead}pg_50_step_p99_ms"],
        f"{lead}client_us_per_step_50": figures[f"{lead}pg_50_client_us_per_step"],
    }


def workflows(ground: Ground) -> Figures:
    """Runs of no step and of one, alone and fifty at a time; those of ten are in the loop."""
    figures: Figures = {}
    for steps in (0, 1):
        for concurrency in (50,) if ground.scale.quick else (1, 50):
            with ground.database() as url:
                reported = ground.loop(url, concurrency, steps=steps)
            name = f"pg_{concurrency}_of_{steps}_steps"
            _add(figures, name, reported, ("workflows_per_s", "workflow_p50_ms", "client_us_per_workflow"))
    return figures


def parts(ground: Ground) -> Figures:
    """What a step takes in the engine alone, and its record in the store alone; runs of no step take the rest."""
    figures: Figures = {}
    runs = ground.scale.some(2000)
    for kind, reported in KINDS.items():
        done = ground.run("parts", "--engine", "--runs", runs, *reported)
        figures[f"{kind}part_engine_us"] = done["client_us_per_step"]
    with ground.database() as url:
        _add(figures, "part_store", ground.run("parts", "--url", url, "--runs", runs), _TOLD_OF_RECORDS)
    return figures


def queue(ground: Ground) -> Figures:
    """Runs of one step started by fifty coroutines, until the last one has completed."""
    figures: Figures = {}
    for kind, reported in KINDS.items():
        with ground.database() as url:
            done = ground.run("queue", "--url", url, "--runs", ground.scale.some(2000), "--steps", 1, *reported)
        _add(figures, f"{kind}queue", done, ("runs_per_s", "starts_per_s", "start_p50_ms", "client_us_per_run"))
    return figures


def load(ground: Ground) -> Figures:
    """Steps that become due at random, at a rising rate, up to what is carried."""
    figures: Figures = {}
    rates = (500, 2000) if ground.scale.quick else (500, 1000, 2000, 5000, 10_000)
    for kind, reported in KINDS.items():
        if kind and ground.scale.quick:
            continue
        with ground.database() as url:
            lasting = ("--seconds", ground.scale.seconds, "--postmaster", ground.server.pid)
            done = ground.run("load", "--url", url, "--rates", *rates, *lasting, *reported)
        figures[f"{kind}load_most_carried_per_s"] = done["most_carried"]
        for rate, one in done["rates"].items():
            told_of = ("carried_per_s", "step_p50_ms", "step_p99_ms", "client_us_per_step", "server_us_per_step")
            _add(figures, f"{kind}load_{rate}", one, told_of)
    return figures


def statements(ground: Ground) -> Figures:
    """Statements, commits and bytes of the log for a step; what an idle worker does meanwhile is taken off."""
    figures: Figures = {}
    idle = _idle(ground)
    for kind, reported in KINDS.items():
        for name, concurrency, steps in (("", 1, 100 if ground.scale.quick else _LONE_STEPS), ("_50", 50, 10)):
            with ground.database() as url:
                made, done = _counted(ground, url, concurrency, *reported, steps=steps)
            made, number = made.combined(idle(done["lifetime_s"]), sub), done["steps_in_all"]
            figures[f"{kind}commits_per_step{name}"] = made.commits / number
            figures[f"{kind}wal_bytes_per_step{name}"] = made.wal_bytes / number
            if made.statements is not None and made.step_statements is not None:
                figures[f"{kind}statements_per_step{name}"] = made.step_statements / number
                figures[f"{kind}all_statements_per_step{name}"] = made.statements / number
    return figures


def _idle(ground: Ground) -> Callable[[float], Counts]:
    """What a worker with nothing to do has done after so many seconds: opening, and then looking again and again."""
    found = []
    for seconds in (0.2, 1.7):
        with ground.database() as url:
            found.append(_counted(ground, url, 0, "--seconds", seconds))
    (short, first), (long, second) = found
    since = second["lifetime_s"] - first["lifetime_s"]

    def after(lifetime: float) -> Counts:
        more = (lifetime - first["lifetime_s"]) / since
        return short.combined(long, lambda this, that: this + (that - this) * more)

    return after


def _counted(
    ground: Ground, url: str, concurrency: int, *reported: object, steps: int = 0
) -> tuple[Counts, dict[str, Any]]:
    before = counts(ground.server, url)
    done = ground.loop(url, concurrency, *reported, steps=steps)
    return counts(ground.server, url).combined(before, sub), done


def payloads(ground: Ground) -> Figures:
    """Steps with a result of 1 KiB and of 64 KiB, at 50 runs; those of 100 bytes are in the loop."""
    figures: Figures = {}
    for size, name in ((1024, "1k"), (65_536, "64k")):
        with ground.database() as url:
            reported = ground.loop(url, 50, "--payload", size)
        _add(figures, f"pg_50_payload_{name}", reported)
    return figures


def fan(ground: Ground) -> Figures:
    """Ten and a thousand steps of one run side by side."""
    figures: Figures = {}
    for kind, reported in KINDS.items():
        widths = (10, 100) if ground.scale.quick else (10, 1000)
        with ground.database() as url:
            done = ground.run("fan", "--url", url, "--parallel", *widths, "--steps", ground.scale.some(2000), *reported)
        for width, one in done["widths"].items():
            _add(figures, f"{kind}parallel_{width}", one, ("p50_ms", "steps_per_s", "client_us_per_step"))
    return figures


def sqlite(ground: Ground) -> Figures:
    """The loop on a file, whose commits wait for the disk, with its floor, and in memory."""
    figures: Figures = {}
    told_of_floor = ground.run("floor", "--sqlite", ground.file(), "--seconds", ground.scale.seconds)
    _add(figures, "floor_sqlite", told_of_floor, _TOLD_OF_FLOORS)
    for kind, reported in KINDS.items():
        for concurrency in (1, 50):
            _add(
                figures,
                f"{kind}sqlite_{concurrency}",
                ground.loop(f"sqlite:///{ground.file()}", concurrency, *reported),
            )
            if not kind and not ground.scale.quick:
                _add(figures, f"{kind}memory_{concurrency}", ground.loop("sqlite://", concurrency, *reported))
        lone = figures[f"{kind}sqlite_1_step_p50_ms"]
        figures[f"{kind}lone_step_p50_over_sqlite3"] = lone / figures["floor_sqlite_p50_ms"]
    return figures


def _add(figures: Figures, lead: str, reported: dict[str, Any], names: tuple[str, ...] = _TOLD) -> None:
    """Take over what a program said, as far as it could say it."""
    figures.update({f"{lead}_{name}": reported[name] for name in names if reported.get(name) is not None})
