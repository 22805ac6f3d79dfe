"""The programs of a round: there is one for each side of each ratio, and both sides stand close to each other."""

from importlib.util import find_spec

import pytest

from tests.bench.peers.entries import GROUPS, PEERS, Ground, chosen, surroundings
from tests.bench.peers.figures import RATIOS

ENTRIES = [each for group in GROUPS for each in group]


def test_every_side_of_every_ratio_is_measured():
    names = {each.name for each in ENTRIES}
    assert len(names) == len(ENTRIES)
    assert {side for each in RATIOS for side in (each.over, each.under) if side} - names == set()


def test_the_two_sides_of_a_ratio_over_dbos_follow_each_other_closely():
    groups = [{each.name for each in group} for group in GROUPS]
    apart = [
        each.name
        for each in RATIOS
        if each.under.startswith("dbos") and not any({each.over, each.under} <= group for group in groups)
    ]
    assert apart == []


def test_a_database_that_is_analysed_is_one_that_belay_has_filled():
    for group in GROUPS:
        for before, each in zip((None, *group), group, strict=False):
            if each.ground is Ground.ANALYSED:
                places = [at for at in group[: group.index(each)] if at.ground is Ground.SCHEMA]
                assert before is not None
                assert places, "there is no database yet"
                assert places[-1].arguments == each.arguments, "it was filled by other steps"


def test_every_program_is_there():
    assert {each.program for each in ENTRIES if find_spec(each.program) is None} == set()


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_that_is_chosen_is_measured_beside_belay_alone(peer: str):
    assert {each.peer for group in chosen([peer], quick=False) for each in group} == {"belay", peer}


def test_a_quick_round_is_shorter_and_leaves_nothing_out():
    long, quick = ([each for group in chosen([], quick=quick) for each in group] for quick in (False, True))
    assert [each.name for each in quick] == [each.name for each in long] == [each.name for each in ENTRIES]
    for before, each in zip(long, quick, strict=True):
        if before.seconds:
            assert each.seconds < before.seconds
        else:
            assert each.arguments != before.arguments


def test_a_program_learns_nothing_of_the_surroundings_settings(monkeypatch: pytest.MonkeyPatch):
    for name in (
        "DBOS_CONDUCTOR_KEY",
        "RESTATE_BASE_DIR",
        "LANGSMITH_API_KEY",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "PGHOST",
    ):
        monkeypatch.setenv(name, "elsewhere")
    reported = surroundings()
    assert "elsewhere" not in reported.values()
    assert (reported["DO_NOT_TRACK"], reported["LANGSMITH_TRACING"]) == ("1", "false")
