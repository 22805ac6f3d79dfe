"""What may be said of a run whose process was killed: the ledger outside the database is the judge."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from belay_testing.crashes.effect_log import Effect
from tests.crashes.scenarios import REPEATABLE, Scenario


@dataclass(frozen=True)
class Verdict:
    """One point: ``lost`` and ``double`` are what must never be, each in words."""

    state: str
    duplicates: int = 0
    """Executions of idempotent steps beyond the first, none of them recorded."""
    lost: tuple[str, ...] = ()
    double: tuple[str, ...] = ()


def step_of(key: str) -> str:
    return key.rpartition("/")[2].partition("#")[0]


def judge(scenario: Scenario, reported: dict[str, Any], effects: Iterable[Effect], expected: set[str]) -> Verdict:
    """Judge what the survivor told, by what was done to the world."""
    effects = list(effects)
    times = Counter(each.key for each in effects)
    tries = Counter((each.key, each.attempt) for each in effects)
    lost = list(_lost(scenario, reported, set(times), expected))
    double = [
        f"{key}, attempt {attempt}, ran {number} times, and is not idempotent"
        for (key, attempt), number in tries.items()
        if number > 1 and step_of(key) not in REPEATABLE
    ]
    again = {each.key for each in effects if each.pid == reported["pid"]}
    double += [f"{key} was recorded as done, and ran again" for key, _ in reported["done"] if key in again]
    double += [f"{key} was recorded by another, and ran again" for key in scenario.recorded if times[key] > 1]
    failed = {(key, attempt) for key, attempt, state, _ in reported["attempts"] if state == "failed"}
    for key, number in times.items():
        allowed = 1 + sum(1 for each in failed if each[0] == key)
        if step_of(key) not in REPEATABLE and number > allowed:
            double.append(f"{key} ran {number} times, and is not idempotent")
    duplicates = sum(number - 1 for key, number in times.items() if step_of(key) in REPEATABLE)
    return Verdict(reported["state"], duplicates, tuple(lost), tuple(dict.fromkeys(double)))


def _lost(scenario: Scenario, reported: dict[str, Any], done: set[str], expected: set[str]) -> Iterable[str]:
    if reported["state"] == "completed":
        if reported["result"] != scenario.result:
            yield f"the run completed with {reported['result']}"
        if missing := expected - done:
            yield f"the run completed without {', '.join(sorted(missing))}"
        if any(decision != "approved" for decision in reported["decisions"]):
            yield f"the run completed over {reported['decisions']}"
    elif reported["state"] != "needs_review":
        yield f"the run is left {reported['state']}"
    elif not any(state == "orphaned" and not idempotent for _, _, state, idempotent in reported["attempts"]):
        yield "the run waits for an operator although nobody is in doubt"
