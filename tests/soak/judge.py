"""Judges a soak by what its ledger says, which belay had no hand in, against what belay says of its runs."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from belay_core.records.commands import RunHistory
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState

NOT_REPEATABLE = frozenset({"pay", "flaky"})


@dataclass
class Operator:
    """What people have decided, as far as it was acknowledged to them."""

    started: dict[str, int] = field(default_factory=dict)
    """The seed of each run whose start was acknowledged."""
    gates: dict[str, list[Any]] = field(default_factory=dict)
    """By run: the answer that its gate ``clerk`` was given, and the number in it."""
    retried: Counter[str] = field(default_factory=Counter)
    """How often a step was let run again, by key."""
    resolved: set[str] = field(default_factory=set)
    """Keys of steps that a person has said something about."""
    other_reviews: list[str] = field(default_factory=list)
    """Reviews that are about no step of unknown end: what each said."""


@dataclass
class Verdict:
    """What went wrong, by its kind; each a list of sentences."""

    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    disagree: list[str] = field(default_factory=list)
    other_decision: list[str] = field(default_factory=list)

    @property
    def faults(self) -> Mapping[str, list[str]]:
        return vars(self)


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The lines of a ledger; the last one may have been cut with its process."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def judge(lines: Sequence[Mapping[str, Any]], runs: Mapping[str, RunHistory], operator: Operator) -> Verdict:
    """Compare the ledger with the runs and with what people were told."""
    verdict = Verdict()
    by_run: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        by_run[line["run"]].append(line)
    for run, seed in operator.started.items():
        if run not in runs:
            verdict.lost.append(f"{run}: its start was acknowledged, and it is not there")
        else:
            _judge_run(verdict, run, seed, by_run[run], runs[run], operator)
    return verdict


def _judge_run(
    verdict: Verdict, run: str, seed: int, lines: Sequence[Mapping[str, Any]], history: RunHistory, operator: Operator
) -> None:
    status = history.run.status
    if status is not RunStatus.COMPLETED:
        verdict.stuck.append(f"{run}: it is {status.value}: {history.run.error or history.run.waiting}")
        return
    if history.run.result != str(seed):
        verdict.lost.append(f"{run}: its result is not its own")
    verdict.doubled += _doubled(lines, operator)
    verdict.unknown += _unknown(lines, history, operator)
    verdict.lost += _lost_effects(lines, history)
    bodies = _bodies(lines)
    verdict.disagree += _disagreements(run, bodies)
    if run in operator.gates and not any(what[:1] == ["gate"] for body in bodies for what in body):
        verdict.lost.append(f"{run}: it was decided upon, and the body was not told")
    for what in (what for body in bodies for what in body if what[0] == "gate"):
        if run in operator.gates and what[1:] != operator.gates[run]:
            verdict.other_decision.append(f"{run}: decided {operator.gates[run]}, and the body was told {what[1:]}")


def _doubled(lines: Sequence[Mapping[str, Any]], operator: Operator) -> Iterable[str]:
    """Effects that took place more often than their kind allows."""
    began: Counter[str] = Counter()
    raised: Counter[str] = Counter()
    answered: defaultdict[int, set[int]] = defaultdict(set)
    """By number: the processes that had this run in hand when its answer was given, and were not told of it."""
    present: set[int] = set()
    for line in lines:
        if line["kind"] == "heard" and line["what"][0] in {"answer", "next"}:
            answered.setdefault(line["what"][1], set(present)).discard(line["pid"])
        elif line["kind"] == "raised":
            raised[line["key"]] += 1
        elif line["kind"] == "begin":
            key = line["key"]
            began[key] += 1
            # One that was stopped meanwhile goes on with what may be repeated, until it hears that it is not the owner.
            if line["number"] in answered and line["pid"] not in answered[line["number"]]:
                yield f"{key}: executed again after its answer was given"
            elif line["step"] in NOT_REPEATABLE and began[key] > 1 + raised[key] + operator.retried[key]:
                yield f"{key}: executed {began[key]} times, and {operator.retried[key]} repeats were asked for"
        present.add(line["pid"])


def _unknown(lines: Sequence[Mapping[str, Any]], history: RunHistory, operator: Operator) -> Iterable[str]:
    """Effects that may or may not have taken place, and nobody was asked."""
    begun: Counter[str] = Counter()
    for line in lines:
        if line["kind"] in {"begin", "done", "raised"} and line["step"] in NOT_REPEATABLE:
            begun[line["key"]] += 1 if line["kind"] == "begin" else -1
    for key, open_effects in begun.items():
        if open_effects > 0 and key not in operator.resolved:
            yield f"{key}: nobody knows how it ended, and nobody was asked"
    for attempt in history.attempts:
        if attempt.state is StepState.RUNNING:
            yield f"{history.run.run_id}/{attempt.step_key}: its run is over, and it is recorded as running"


def _lost_effects(lines: Sequence[Mapping[str, Any]], history: RunHistory) -> Iterable[str]:
    """Steps that are recorded as done and were not."""
    begun = {line["key"] for line in lines if line["kind"] == "begin"}
    for attempt in history.attempts:
        key = f"{history.run.run_id}/{attempt.step_key}"
        if attempt.state is StepState.SUCCEEDED and attempt.kind.value == "step" and key not in begun:
            yield f"{key}: recorded as done, and it was never executed"


def _bodies(lines: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """What each execution of the body was told, in the order in which the executions began."""
    found: dict[str, list[Any]] = {}
    for line in lines:
        if line["kind"] == "heard":
            found.setdefault(line["body"], []).append(line["what"])
    return list(found.values())


def _disagreements(run: str, bodies: list[list[Any]]) -> Iterable[str]:
    for one, other in pairwise(sorted(bodies, key=len)):
        shared = min(len(one), len(other))
        if one[:shared] != other[:shared]:
            at = next(place for place in range(shared) if one[place] != other[place])
            yield f"{run}: one execution was told {one[at]} where another was told {other[at]}"
