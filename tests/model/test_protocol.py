"""The ownership protocol holds in every state, and each of its rules is needed for that."""

import json

import pytest

from tests.model import check
from tests.model.exploring import explore
from tests.model.planted import PLANTED, PROTOCOL, QUIET, SOUND, SPARE, SPARE_WORLD, Fault

HAPPENS = {
    "acquires",
    "acquires, the reply is lost",
    "asks, the request is late",
    "finds that it owns the run",
    "finds the owner dead",
    "gets nothing",
    "gives the command up",
    "holds",
    "is refused, and reads again",
    "leaves",
    "parks, the reply is lost",
    "process 1 dies",
    "reads: again",
    "reads: arrived",
    "records",
    "renews",
    "renews, late",
    "settles, the request is late",
    "the late acquire arrives",
    "the late acquire is lost",
    "the late hold arrives",
    "the late park arrives",
    "the late record arrives",
    "the late renew arrives",
    "the late settle arrives",
    "the owner is silent",
}
"""What an exploration that forgot half of the world would not meet."""


@pytest.mark.parametrize("world", SOUND)
def test_every_promise_holds_in_every_state(world, record_property):
    explored = explore(SOUND[world])
    record_property("states", explored.states)
    assert explored.broken is None, "\n".join(explored.path)
    assert explored.states > 4_000
    if world == "three workers":
        assert explored.kinds >= HAPPENS
    else:
        assert "the replica takes over" in explored.kinds


@pytest.mark.parametrize("fault", PLANTED)
def test_without_one_of_its_rules_a_promise_breaks(fault):
    explored = explore(PLANTED[fault].setting)
    assert explored.broken == PLANTED[fault].breaks
    assert explored.path[-1] == explored.broken
    assert all(explored.path)


@pytest.mark.parametrize("rule", SPARE)
def test_some_rules_make_up_for_each_other(rule):
    assert explore(SPARE_WORLD._replace(rules=SPARE[rule])).broken is None


@pytest.fixture
def small(monkeypatch):
    """The command, over the smallest worlds and two faults."""
    monkeypatch.setattr(check, "SOUND", {"quiet": QUIET})
    names = ("the fence compares no nonce", "the fence compares no epoch")
    monkeypatch.setattr(check, "PLANTED", {name: PLANTED[name] for name in names})


def test_the_command_says_what_it_found(small, tmp_path, capsys):
    report = tmp_path / "model.json"
    assert check.main(["--json", str(report)]) == 0
    figures = json.loads(report.read_text())
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == figures
    assert (figures["planted"], figures["caught"]) == (2, 2)
    assert figures["states"] > 50
    assert figures["seconds"] >= 0


def test_the_command_fails_where_a_fault_is_missed_or_a_promise_breaks(small, monkeypatch, capsys):
    harmless = Fault(PROTOCOL, "the epoch went back", QUIET)
    monkeypatch.setattr(check, "PLANTED", {"nothing": harmless})
    assert check.main([]) == 1
    assert "MISSED" in capsys.readouterr().out
    monkeypatch.setattr(check, "PLANTED", {})
    monkeypatch.setattr(check, "SOUND", {"broken": PLANTED["the fence compares no epoch"].setting})
    assert check.main([]) == 1
    assert "the late acquire arrives" in capsys.readouterr().out
