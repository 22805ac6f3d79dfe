"""``python -m tests.bench.peers.page JSON..``: put what was measured into the page on speed, and its picture beside it.

Of several files each figure is the median over the files. The page's own words are left as they are.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from tests.bench.peers.figures import RATIOS, Figures, Ratio
from tests.bench.peers.plot import SHOWN, drawn, steps
from tests.variants.choosing import ROOT

PAGE = ROOT / "docs" / "explanation" / "performance.md"
PICTURE = ROOT / "docs" / "assets" / "peers.svg"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
QUEUES = {"belay_pg": "belay_queue", "belay_pg*_once": "belay_queue_once", "dbos_pg": "dbos_queue"}
TOLD = {
    "pg_50_over_dbos": "PostgreSQL, fifty runs: steps/s over DBOS",
    "pg_1_over_dbos": "PostgreSQL, one run: steps/s over DBOS",
    "queue_over_dbos": "PostgreSQL, queue: runs/s over DBOS",
    "sqlite_50_over_dbos": "SQLite, fifty runs: steps/s over DBOS",
    "sqlite_1_over_dbos": "SQLite, one run: steps/s over DBOS",
    "pg_50_over_asyncpg_8": "fifty runs: steps/s over asyncpg's commits/s on 8 connections",
    "lone_step_p50_over_asyncpg": "one run: a step's p50 over that of one asyncpg commit",
    "lone_step_p50_over_sqlite3": "one run: a step's p50 over that of one sqlite3 commit",
    "step_p99_ms_50": "fifty runs: a step's p99, ms",
    "restate_50_ratio": "fifty runs: steps/s over Restate",
    "restate_1_ratio": "one run: steps/s over Restate",
    "queue_over_restate": "queue: runs/s over Restate",
    "pg_50_over_absurd": "fifty runs: steps/s over absurd",
    "pg_1_over_absurd": "one run: steps/s over absurd",
    "queue_over_absurd": "queue: runs/s over absurd",
    "pg_50_over_langgraph": "fifty runs: steps/s over LangGraph's saver",
    "pg_1_over_langgraph": "one run: steps/s over LangGraph's saver",
    "analysed_pg_50_over_dbos": "fifty runs, tables analysed: steps/s over DBOS",
}
"""The ratios in words; those for steps that are not idempotent stand beside them."""


def merged(files: Sequence[Figures]) -> Figures:
    """One object of several: medians of numbers, and of everything else what the last file says."""
    figures: Figures = {}
    for name in dict.fromkeys(name for each in files for name in each):
        values = [each[name] for each in files if each.get(name) is not None]
        numbers = [each for each in values if isinstance(each, float | int)]
        figures[name] = round(median(numbers), 3) if numbers else (values or [None])[-1]
    return figures


def placed(page: str, figures: Figures) -> str:
    """The page with these figures between its marks. Raises ``ValueError`` where it has none."""
    before, begun, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"the page has no {BEGIN} with its {END}")
    return f"{before}{BEGIN}\n\n" + "\n".join(section(figures)) + f"\n\n{END}{after}"


def section(figures: Figures) -> Iterator[str]:
    """The picture, the two tables, and what they were taken on."""
    yield f"![Steps a second of belay and of other libraries](../assets/{PICTURE.name})"
    yield ""
    yield "| | one run, steps/s | fifty runs, steps/s | of fifty, a step's p50 / p99, ms | queue, runs/s |"
    yield "|---|---|---|---|---|"
    for name, entry, _ in SHOWN:
        lead, _, end = entry.partition("*")
        latency = [_shown(figures.get(f"{lead}_50{end}_step_{part}_ms")) for part in ("p50", "p99")]
        queue = figures.get(f"{QUEUES.get(entry, f'{entry}_queue')}_runs_per_s")
        speeds = [_shown(steps(figures, entry, concurrency)) for concurrency in (1, 50)]
        yield f"| {name} | {speeds[0]} | {speeds[1]} | {' / '.join(latency)} | {_shown(queue)} |"
    yield ""
    yield "Each ratio is the median of the rounds' own ratios; in brackets the lowest and the highest round."
    yield ""
    yield "| | idempotent steps | target | other steps | target |"
    yield "|---|---|---|---|---|"
    for name, words in TOLD.items():
        cells = [cell for prefix in ("", "non_idempotent_") for cell in _cells(figures, _ratio(prefix + name))]
        yield f"| {words} | {' | '.join(cells)} |"
    yield ""
    yield from _surroundings(figures)


def _ratio(name: str) -> Ratio:
    return next(each for each in RATIOS if each.name == name)


def _cells(figures: Figures, ratio: Ratio) -> tuple[str, str]:
    value, low, high = (figures.get(ratio.name + end) for end in ("", "_low", "_high"))
    if not isinstance(value, float | int):
        return "not measured", ratio.target
    missed = "" if ratio.met(value) else ": missed"
    return f"{_shown(value)} ({_shown(low)} to {_shown(high)})", f"{ratio.target}{missed}"


def _shown(value: object) -> str:
    """A number with about three digits."""
    if not isinstance(value, float | int):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _surroundings(figures: Figures) -> Iterator[str]:
    lead = "version_"
    versions = ", ".join(f"{name[len(lead) :]} {value}" for name, value in figures.items() if name.startswith(lead))
    yield (
        f"Taken on {figures['measured_on']}, {figures['rounds']:.0f} rounds, on a machine with"
        f" {figures['cores']:.0f} cores and {figures['memory_gib']:.0f} GiB of memory whose disk takes"
        f" {_shown(figures['disk_sync_ms'])} ms to sync a page, shared by the program, PostgreSQL"
        f" {figures['postgresql']} and the peers' own servers; the load was {_shown(figures['load_before'])} before and"
        f" at most {_shown(figures['load_most'])} meanwhile. Python {figures['python']}, SQLite {figures['sqlite']};"
        f" {versions}."
    )
    for name, why in figures.items():
        if name.startswith("not_measured_"):
            yield f"Not measured: {name.removeprefix('not_measured_')} ({str(why).splitlines()[0][:120]})."


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers.page", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="JSON", help="what `make bench-peers JSON=..` wrote")
    given = parser.parse_args(arguments)
    figures = merged([json.loads(file.read_text()) for file in given.files])
    PAGE.write_text(placed(PAGE.read_text(), figures))
    PICTURE.write_text(drawn(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
