"""From what the rounds measured to figures: ratios round by round, then medians, held against their targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

Round: TypeAlias = Mapping[str, Mapping[str, float]]
"""What each entry of one round printed."""
Figures: TypeAlias = dict[str, float | str | None]


@dataclass(frozen=True)
class Ratio:
    """One figure over another of the same round; over nothing, it stands for itself."""

    name: str
    over: str
    figure: str
    under: str = ""
    under_figure: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def of(self, round_: Round) -> float | None:
        """Its value in one round; None where a side is missing."""
        over = round_.get(self.over, {}).get(self.figure)
        if over is None or not self.under:
            return over
        under = round_.get(self.under, {}).get(self.under_figure or self.figure)
        return over / under if under else None

    @property
    def target(self) -> str:
        """In words; nothing where there is none."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}" if self.at_most is not None else ""

    def met(self, value: float) -> bool:
        """Whether it stands to its target, or has none."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def verdict(self, value: float | None) -> str:
        """How it stands to its target."""
        if value is None:
            return "not measured"
        return f"{'met' if self.met(value) else 'missed'} ({self.target})" if self.target else ""


def _both(name: str, over: str, figure: str, under: str = "", under_figure: str = "", **targets: float) -> list[Ratio]:
    """For idempotent steps, and for those that are not; ``least`` and ``most`` and ``once_``... are their targets."""
    return [
        Ratio(
            prefix + name,
            over + suffix,
            figure,
            under,
            under_figure,
            targets.get(f"{of}least"),
            targets.get(f"{of}most"),
        )
        for prefix, suffix, of in (("", "", ""), ("non_idempotent_", "_once", "once_"))
    ]


RATIOS: tuple[Ratio, ...] = (
    *_both("pg_50_over_dbos", "belay_pg_50", "steps_per_s", "dbos_pg_50", least=80, once_least=40),
    *_both("pg_1_over_dbos", "belay_pg_1", "steps_per_s", "dbos_pg_1", least=5, once_least=2.5),
    *_both("queue_over_dbos", "belay_queue", "runs_per_s", "dbos_queue", least=80, once_least=40),
    *_both("sqlite_50_over_dbos", "belay_sqlite_50", "steps_per_s", "dbos_sqlite_50", least=80, once_least=40),
    *_both("sqlite_1_over_dbos", "belay_sqlite_1", "steps_per_s", "dbos_sqlite_1", least=5, once_least=2.5),
    *_both(
        "pg_50_over_asyncpg_8", "belay_pg_50", "steps_per_s", "floor_pg_8", "commits_per_s", least=1.2, once_least=0.7
    ),
    *_both("lone_step_p50_over_asyncpg", "belay_pg_1", "step_p50_ms", "floor_pg_1", "p50_ms", most=1.6, once_most=3),
    *_both(
        "lone_step_p50_over_sqlite3", "belay_sqlite_1", "step_p50_ms", "floor_sqlite", "p50_ms", most=2, once_most=4
    ),
    *_both("step_p99_ms_50", "belay_pg_50", "step_p99_ms", most=5, once_most=10),
    *_both("restate_50_ratio", "belay_pg_50", "steps_per_s", "restate_50", least=4, once_least=2),
    *_both("restate_1_ratio", "belay_pg_1", "steps_per_s", "restate_1"),
    *_both("queue_over_restate", "belay_queue", "runs_per_s", "restate_queue"),
    *_both("pg_50_over_absurd", "belay_pg_50", "steps_per_s", "absurd_50"),
    *_both("pg_1_over_absurd", "belay_pg_1", "steps_per_s", "absurd_1"),
    *_both("queue_over_absurd", "belay_queue", "runs_per_s", "absurd_queue"),
    *_both("pg_50_over_langgraph", "belay_pg_50", "steps_per_s", "langgraph_50"),
    *_both("pg_1_over_langgraph", "belay_pg_1", "steps_per_s", "langgraph_1"),
    Ratio("analysed_pg_50_over_dbos", "belay_pg_50_analysed", "steps_per_s", "dbos_pg_50", at_least=80),
    Ratio(
        "non_idempotent_analysed_pg_50_over_dbos", "belay_pg_50_once_analysed", "steps_per_s", "dbos_pg_50", at_least=40
    ),
)


def summed(rounds: Sequence[Round]) -> Figures:
    """All as one flat object: each ratio with its lowest and highest round, and each entry's figures; medians."""
    figures: Figures = {}
    for ratio in RATIOS:
        values = [value for each in rounds if (value := ratio.of(each)) is not None]
        figures[ratio.name] = round(median(values), 3) if values else None
        if values:
            figures |= {f"{ratio.name}_low": round(min(values), 3), f"{ratio.name}_high": round(max(values), 3)}
    for entry in dict.fromkeys(name for each in rounds for name in each):
        seen = [each[entry] for each in rounds if entry in each]
        for figure in seen[0]:
            values = [each[figure] for each in seen if each.get(figure) is not None]
            if values:
                figures[f"{entry}_{figure}"] = round(median(values), 3)
    return figures


def table(figures: Figures) -> list[str]:
    """The ratios as lines: median, lowest and highest round, and how it stands to its target."""
    lines = [f"{'':46}{'median':>10}{'low':>10}{'high':>10}"]
    for ratio in RATIOS:
        value = figures[ratio.name]
        shown = [figures.get(ratio.name + end) for end in ("", "_low", "_high")]
        cells = "".join(f"{each:>10.2f}" if isinstance(each, float) else f"{'-':>10}" for each in shown)
        lines.append(f"{ratio.name:46}{cells}  {ratio.verdict(value if isinstance(value, float) else None)}".rstrip())
    return lines
