"""What each figure is to be, and whether it is."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.ground import Figures


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that has to reach something, or to stay below it."""

    name: str
    text: str
    """The figure in words."""
    bound: float
    least: bool = False
    """Whether the bound is the least it may be; else it is the most."""
    floor: str | None = None
    """The figure of the same run it is to be seen beside."""
    measured: str | None = None
    """The figure it is made of, where it is a ratio to the floor."""
    digits: int | None = None
    """Decimals that count: what a worker does beside its steps is not told apart from what they need."""

    def met(self, value: float) -> bool:
        """Whether a value is as it should be."""
        value = value if self.digits is None else round(value, self.digits)
        return value >= self.bound if self.least else value <= self.bound

    @property
    def wanted(self) -> str:
        """The bound in words."""
        return f"{'at least' if self.least else 'at most'} {self.bound:,g}"


def _steps(lead: str, more: bool) -> Iterator[Target]:
    """The targets of a step, of one kind, on a fresh or an analysed database."""
    second = lead.startswith("non_idempotent_")
    which = "analysed, " if "analysed_" in lead else ""

    def bound(one: float, two: float) -> float:
        return two if second else one

    yield Target(f"{lead}client_us_per_step_50", f"{which}client CPU a step at 50 runs, us", bound(50, 90))
    yield Target(
        f"{lead}pg_50_over_asyncpg_8",
        f"{which}steps/s at 50 over asyncpg's commits/s on 8 connections",
        bound(1.2, 0.7),
        least=True,
        floor="floor_pg_8_commits_per_s",
        measured=f"{lead}pg_50_steps_per_s",
    )
    yield Target(
        f"{lead}lone_step_p50_over_asyncpg",
        f"{which}lone step p50 over one asyncpg commit",
        bound(1.6, 3),
        floor="floor_pg_1_p50_ms",
        measured=f"{lead}pg_1_step_p50_ms",
    )
    yield Target(
        f"{lead}lone_step_p99_above_asyncpg_ms",
        f"{which}lone step p99 above that of asyncpg, ms",
        bound(1.5, 3),
        floor="floor_pg_1_p99_ms",
        measured=f"{lead}pg_1_step_p99_ms",
    )
    yield Target(f"{lead}step_p99_ms_50", f"{which}step p99 at 50 runs, ms", bound(5, 10))
    if more:
        yield from _more(lead, second)


def _more(lead: str, second: bool) -> Iterator[Target]:
    yield Target(
        f"{lead}lone_step_p50_over_sqlite3",
        "lone step p50 on SQLite over one sqlite3 commit",
        4 if second else 2,
        floor="floor_sqlite_p50_ms",
        measured=f"{lead}sqlite_1_step_p50_ms",
    )
    commits = 2 if second else 1
    yield Target(f"{lead}statements_per_step", "statements that write a lone step", commits, digits=1)
    yield Target(f"{lead}commits_per_step", "commits a lone step", commits, digits=1)
    yield Target(f"{lead}commits_per_step_50", "commits a step at 50 runs", 0.2 if second else 0.1, digits=2)
    yield Target(f"{lead}history_10000_step_ratio", "a step after 10,000 attempts over one after 10", 1.2)
    for state, number in (("", "100000"), ("analysed_", "100000"), ("", "1000000"), ("analysed_", "1000000")):
        for each in (1, 50):
            text = f"a step beside {int(number):,} finished runs over none, {each} at a time"
            which = "analysed, " if state else ""
            yield Target(f"{lead}{state}finished_{number}_step_ratio_{each}", which + text, 1.3)


def _others() -> Iterator[Target]:
    """What is no matter of a step's kind."""
    yield Target("takeover_1000_ms", "1,000 runs change hands, ms", 500)
    yield Target("decision_same_process_p50_ms", "decision to next step, same process, p50 ms", 2)
    yield Target("decision_other_process_p50_ms", "decision to next step, other process, p50 ms", 8)
    yield Target("decision_polling_p50_ms", "decision to next step, polling only, p50 ms", 60)
    yield Target("kill_to_resumed_p99_ms", "kill -9 to resumed, same machine, p99 ms", 3000)
    yield Target("lapse_to_resumed_p99_ms", "lapse of the lease to resumed, p99 ms", 36_000)
    for driver in ("postgres", "sqlite"):
        yield Target(f"memory_import_{driver}_mib", f"memory after import with {driver}, MiB", 65)
    yield Target("memory_10000_parked_mib", "memory with 10,000 parked runs, MiB", 120)


def targets() -> list[Target]:
    """All targets, in the order in which they are shown."""
    return [
        *(each for lead in ("", "non_idempotent_") for each in _steps(lead, more=True)),
        *(each for lead in ("analysed_", "non_idempotent_analysed_") for each in _steps(lead, more=False)),
        *_others(),
    ]


def judged(figures: Figures) -> Iterator[tuple[Target, float, bool]]:
    """Each target whose figure there is, with the figure, and whether it is met."""
    for target in targets():
        value = figures.get(target.name)
        if value is not None:
            yield target, value, target.met(value)


def table(figures: Figures) -> Iterator[str]:
    """All figures, and then those with a target beside it."""
    leading = {target.name for target in targets()}
    yield f"{'figure':52}{'':>12}"
    for name, value in figures.items():
        if name not in leading:
            yield f"{name:52}{shown(value):>12}"
    yield ""
    yield f"{'':7}{'figure with a target':76}{'measured':>11}{'floor':>11}{'value':>9}  target"
    for target, value, met in judged(figures):
        kind = " (not idempotent)" if target.name.startswith("non_idempotent_") else ""
        seen = [shown(figures[each]) if each in figures else "" for each in (target.measured or "", target.floor or "")]
        reported = f"{target.text}{kind}"
        yield f"{'met' if met else 'MISSED':7}{reported:76}{seen[0]:>11}{seen[1]:>11}{shown(value):>9}  {target.wanted}"


def shown(value: float) -> str:
    """A number with about three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"
