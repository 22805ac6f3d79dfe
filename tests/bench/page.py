"""``python -m tests.bench.page JSON``: put what `make bench` measured into the page on speed, between its marks."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.apart import ROOT
from tests.bench.ground import Figures
from tests.bench.targets import judged, shown

PAGE = ROOT / "docs" / "explanation" / "performance.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
_LOOPS = {
    "PostgreSQL, one run": "pg_1",
    "PostgreSQL, 8 runs": "pg_8",
    "PostgreSQL, 50 runs": "pg_50",
    "PostgreSQL, 50 runs, results of 1 KiB": "pg_50_payload_1k",
    "PostgreSQL, 50 runs, results of 64 KiB": "pg_50_payload_64k",
    "PostgreSQL, 200 runs": "pg_200",
    "SQLite, a file, one run": "sqlite_1",
    "SQLite, a file, 50 runs": "sqlite_50",
    "SQLite, in memory, one run": "memory_1",
    "SQLite, in memory, 50 runs": "memory_50",
}
_HEADS = (
    *("steps/s", "p50 / p99 of a step, ms", "CPU a step, client / server, us"),
    *("not idempotent: steps/s", "p50 / p99, ms"),
)
_FLOORS = {
    "asyncpg, a commit a row, one connection": "floor_pg_1",
    "asyncpg, a commit a row, 8 connections": "floor_pg_8",
    "sqlite3, a commit a row": "floor_sqlite",
}
_OTHERS = {
    "runs of no step, one at a time, runs/s": "pg_1_of_0_steps_workflows_per_s",
    "runs of no step, 50 at a time, runs/s": "pg_50_of_0_steps_workflows_per_s",
    "runs of one step, one at a time, runs/s": "pg_1_of_1_steps_workflows_per_s",
    "runs of one step, 50 at a time, runs/s": "pg_50_of_1_steps_workflows_per_s",
    "CPU of the client for a run of no step, 50 at a time, us": "pg_50_of_0_steps_client_us_per_workflow",
    "CPU of the client for a step in the engine alone, us": "part_engine_us",
    "CPU of the client for a record in the store alone, 50 at a time, us": "part_store_client_us_per_record",
    "records in the store alone, 50 at a time, a second": "part_store_records_per_s",
    "queue of runs of one step, runs/s": "queue_runs_per_s",
    "starts from 50 coroutines, runs/s": "queue_starts_per_s",
    "10 steps of one run side by side, ms": "parallel_10_p50_ms",
    "1,000 steps of one run side by side, ms": "parallel_1000_p50_ms",
    "random load, the most that is carried, steps/s": "load_most_carried_per_s",
    "random load of 500 steps/s, p50, ms": "load_500_step_p50_ms",
    "random load of 500 steps/s, p99, ms": "load_500_step_p99_ms",
    "random load of 2,000 steps/s, p50, ms": "load_2000_step_p50_ms",
    "random load of 2,000 steps/s, p99, ms": "load_2000_step_p99_ms",
    "bytes of the log a step, alone": "wal_bytes_per_step",
    "bytes of the log a step, at 50 runs": "wal_bytes_per_step_50",
    "a history of 1,000 attempts replayed, ms": "history_1000_replay_ms",
    "a history of 10,000 attempts replayed, ms": "history_10000_replay_ms",
    "claims among 100,000 pending runs, runs/s": "claims_100000_pending_per_s",
    "the same, tables analysed": "analysed_claims_100000_pending_per_s",
    "kill -9 to resumed, p50, ms": "kill_to_resumed_p50_ms",
    "memory for a parked run, of 10,000, KiB": "kib_per_parked_run_of_10000",
}


def placed(page: str, figures: Figures) -> str:
    """The page with these figures between its marks. Raises ``ValueError`` where it has none."""
    before, begun, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"the page has no {BEGIN} with its {END}")
    return f"{before}{BEGIN}\n\n" + "\n".join(section(figures)) + f"\n\n{END}{after}"


def section(figures: Figures) -> Iterator[str]:
    """The tables, and what they were taken on."""
    yield from _speeds(figures)
    yield ""
    yield "| | idempotent steps | other steps |"
    yield "|---|---|---|"
    for words, name in _OTHERS.items():
        if name in figures:
            yield f"| {words} | {_cell(figures, name)} | {_cell(figures, f'non_idempotent_{name}')} |"
    yield ""
    yield "| what it is to be | measured | target | |"
    yield "|---|---|---|---|"
    for target, value, met in judged(figures):
        kind = ", steps not idempotent" if target.name.startswith("non_idempotent_") else ""
        yield f"| {target.text}{kind} | {shown(value)} | {target.wanted} | {'met' if met else '**missed**'} |"
    yield ""
    yield (
        f"Medians of {figures['rounds']:.0f} rounds in {figures['seconds']:.0f} s; the load was"
        f" {figures['load_before']:.1f} before and at most {figures['load_most']:.1f} meanwhile."
    )


def _speeds(figures: Figures) -> Iterator[str]:
    yield f"| | {' | '.join(_HEADS)} |"
    yield "|---|---|---|---|---|---|"
    for words, lead in _LOOPS.items():
        steps = _row(figures, lead, "steps_per_s", "step_", "_per_step")
        others = _row(figures, f"non_idempotent_{lead}", "steps_per_s", "step_", "_per_step")
        yield f"| {words} | {' | '.join((*steps, *others[:2]))} |"
    for words, lead in _FLOORS.items():
        yield f"| {words} | {' | '.join(_row(figures, lead, 'commits_per_s', '', ''))} | | |"


def _row(figures: Figures, lead: str, rate: str, before: str, after: str) -> tuple[str, str, str]:
    return (
        _cell(figures, f"{lead}_{rate}"),
        _pair(figures, f"{lead}_{before}p50_ms", f"{lead}_{before}p99_ms"),
        _pair(figures, f"{lead}_client_us{after}", f"{lead}_server_us{after}"),
    )


def _cell(figures: Figures, name: str) -> str:
    return shown(figures[name]) if name in figures else ""


def _pair(figures: Figures, one: str, other: str) -> str:
    cells = [_cell(figures, each) for each in (one, other)]
    return " / ".join(each or "-" for each in cells) if any(cells) else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page", description=__doc__)
    parser.add_argument("file", type=Path, metavar="JSON", help="what `make bench JSON=..` wrote")
    figures = json.loads(parser.parse_args(arguments).file.read_text())
    PAGE.write_text(placed(PAGE.read_text(), figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
