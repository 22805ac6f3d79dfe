"""From rounds to figures: a ratio is of one round, what is missing stays missing, and every promised name is there."""

import pytest

from tests.bench.peers.figures import RATIOS, Ratio, summed, table

PROMISED = {
    "pg_50_over_dbos",
    "pg_1_over_dbos",
    "queue_over_dbos",
    "sqlite_50_over_dbos",
    "sqlite_1_over_dbos",
    "pg_50_over_asyncpg_8",
    "lone_step_p50_over_asyncpg",
    "step_p99_ms_50",
    "restate_50_ratio",
}


def rounds_of(*pairs: tuple[float, float]) -> list[dict[str, dict[str, float]]]:
    return [{"belay_pg_50": {"steps_per_s": own}, "dbos_pg_50": {"steps_per_s": other}} for own, other in pairs]


def test_a_ratio_is_the_median_of_the_rounds_own_ratios():
    figures = summed(rounds_of((1000, 10), (100, 10), (30, 1)))
    assert figures["pg_50_over_dbos"] == 30, "the ratio of the medians would be 10"
    assert (figures["pg_50_over_dbos_low"], figures["pg_50_over_dbos_high"]) == (10, 100)
    assert figures["belay_pg_50_steps_per_s"] == 100


def test_a_round_that_lacks_a_side_gives_no_ratio():
    rounds = rounds_of((1000, 10), (500, 10))
    del rounds[0]["dbos_pg_50"]
    figures = summed(rounds)
    assert figures["pg_50_over_dbos"] == 50
    assert figures["belay_pg_50_steps_per_s"] == 750


def test_a_side_that_came_to_nothing_gives_no_ratio():
    assert summed(rounds_of((1000, 0)))["pg_50_over_dbos"] is None


def test_every_promised_name_is_there_even_where_nothing_was_measured():
    figures = summed([{}])
    assert {name for name in PROMISED if name not in figures} == set()
    assert set(figures.values()) == {None}


def test_what_the_issue_wants_of_both_kinds_of_step_is_there_for_both():
    names = {each.name for each in RATIOS}
    assert {name for name in PROMISED if f"non_idempotent_{name}" not in names} == set()


@pytest.mark.parametrize(
    ("ratio", "value", "verdict"),
    [
        (Ratio("a", "b", "c", at_least=80), 80.0, "met (at least 80)"),
        (Ratio("a", "b", "c", at_least=80), 79.9, "missed (at least 80)"),
        (Ratio("a", "b", "c", at_most=1.6), 1.6, "met (at most 1.6)"),
        (Ratio("a", "b", "c", at_most=1.6), 1.61, "missed (at most 1.6)"),
        (Ratio("a", "b", "c"), 1.0, ""),
        (Ratio("a", "b", "c", at_most=1.6), None, "not measured"),
    ],
)
def test_a_figure_that_misses_its_target_is_called_missed(ratio: Ratio, value: float | None, verdict: str):
    assert ratio.verdict(value) == verdict


def test_the_table_has_a_line_for_every_ratio():
    lines = table(summed(rounds_of((100, 10))))
    assert [line.split()[0] for line in lines[1:]] == [each.name for each in RATIOS]
    assert next(line for line in lines if line.startswith("pg_50_over_dbos")).endswith("10.00  missed (at least 80)")
    assert next(line for line in lines if line.startswith("restate_50_ratio")).endswith("not measured")
