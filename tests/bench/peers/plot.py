"""The figures as a picture: steps a second, belay beside the others, on a scale of powers of ten."""

import math
from collections.abc import Iterator
from html import escape

from tests.bench.peers.figures import Figures

SHOWN: tuple[tuple[str, str, str], ...] = (
    ("belay, PostgreSQL", "belay_pg", "own"),
    ("belay, PostgreSQL, steps not idempotent", "belay_pg*_once", "own"),
    ("asyncpg alone, on 8 connections or one", "floor_pg", "floor"),
    ("Restate", "restate", "other"),
    ("LangGraph's saver alone, PostgreSQL", "langgraph", "other"),
    ("absurd, PostgreSQL", "absurd", "other"),
    ("DBOS, PostgreSQL", "dbos_pg", "other"),
    ("belay, SQLite", "belay_sqlite", "own"),
    ("belay, SQLite, steps not idempotent", "belay_sqlite*_once", "own"),
    ("DBOS, SQLite", "dbos_sqlite", "other"),
)
"""What a line is about, whose figures it shows, and how it is painted."""
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 860, 330, 90, 84, 44, 14
LOWEST, HIGHEST = 1, 5
"""The powers of ten at the ends of the scale."""

# The picture brings its own ground, so that it can be read wherever it stands.
STYLE = """
svg { font: 13px system-ui, sans-serif; }
.ground { fill: #ffffff; } .line { stroke: #d9dee3; } text { fill: #1f2933; } .small { font-size: 11px; fill: #52606d; }
.own { fill: #00796b; } .other { fill: #8795a1; } .floor { fill: #c77d0a; } .alone { opacity: 0.55; }
@media (prefers-color-scheme: dark) {
.ground { fill: #16191d; } .line { stroke: #343b43; } text { fill: #e4e7eb; } .small { fill: #9aa5b1; }
.own { fill: #26a69a; } .other { fill: #7b8794; } .floor { fill: #e0a030; }
}
"""


def steps(figures: Figures, entry: str, concurrency: int) -> float | None:
    """Steps a second of this line; None where none was seen."""
    lead, _, end = entry.partition("*")
    figure = "steps_per_s"
    if entry == "floor_pg":
        figure, concurrency = "commits_per_s", 8 if concurrency > 1 else 1
    value = figures.get(f"{lead}_{concurrency}{end}_{figure}")
    return float(value) if isinstance(value, float | int) and value else None


def drawn(figures: Figures) -> str:
    """An SVG picture of what was measured."""
    rows = [
        (name, entry, paint) for name, entry, paint in SHOWN if steps(figures, entry, 50) or steps(figures, entry, 1)
    ]
    height = TOP + ROW * len(rows) + 16
    title = "Steps a second: runs of ten steps, fifty at a time and one alone"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>\n'
        f'<text x="16" y="26" font-weight="600">{title}</text>\n'
        '<text class="small" x="16" y="45">full bar: fifty runs at a time; pale bar: one run after the other;'
        " each mark of the scale is ten times the one before</text>\n"
    )
    return head + "".join((*_scale(height), *_bars(figures, rows))) + "</svg>\n"


def _x(value: float) -> float:
    part = (math.log10(max(value, 10**LOWEST)) - LOWEST) / (HIGHEST - LOWEST)
    return LEFT + min(part, 1.0) * (WIDTH - LEFT - RIGHT)


def _scale(height: int) -> Iterator[str]:
    for power in range(LOWEST, HIGHEST + 1):
        x = _x(10**power)
        yield f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 12}"/>\n'
        yield f'<text class="small" x="{x:.1f}" y="{TOP - 14}" text-anchor="middle">{10**power:,}</text>\n'


def _bars(figures: Figures, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    for number, (name, entry, paint) in enumerate(rows):
        y = TOP + ROW * number
        yield f'<text x="{LEFT - 10}" y="{y + BAR + 6}" text-anchor="end">{escape(name)}</text>\n'
        for turn, concurrency in enumerate((50, 1)):
            value = steps(figures, entry, concurrency)
            if value is None:
                continue
            top, alone = y + turn * (BAR + 2), " alone" if concurrency == 1 else ""
            yield (
                f'<rect class="{paint}{alone}" x="{LEFT}" y="{top}" width="{_x(value) - LEFT:.1f}" height="{BAR}"/>\n'
                f'<text class="small" x="{_x(value) + 6:.1f}" y="{top + BAR - 3}">{value:,.0f}</text>\n'
            )
