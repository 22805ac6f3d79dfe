"""Names of outcomes, and where they are counted: one table an operation, its keys exactly its outcomes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, UnionType
from typing import Final, TypeAlias, cast, get_args

from belay_core.records.commands import GiveUp, Resolution
from belay_core.records.run import TERMINAL, RunStatus
from belay_core.stores import run_contract
from belay_core.stores.runs import (
    Acquired,
    RenewOutcome,
    Resolved,
    ResolveOutcome,
    RetryOutcome,
    RunParkOutcome,
    Settled,
    SettleOutcome,
)
from belay_core.telemetry import names

Outcomes: TypeAlias = "type[object] | UnionType"
"""The outcomes of one operation: a union of classes, or the only class."""

_SECOND_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def outcome_name(outcome: type[object]) -> str:
    """The name of an outcome's class in snake_case: ``FenceLost`` is ``fence_lost``."""
    return _in_snake_case(outcome.__name__)


@cache
def _in_snake_case(name: str) -> str:
    return _SECOND_WORD.sub("_", name).lower()


@dataclass(frozen=True, slots=True)
class Series:
    """One series: the name of a counter, and attributes."""

    counter: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Counted:
    """Where one operation is counted: by the class of its outcome, or by how it failed.

    ``over`` is the outcome after which the run has ended and adds to the throughput.
    """

    answers: Mapping[type[object], Series]
    failure: Series
    interrupt: Series
    over: type[object] | None = None


def _counted(counter: str, fixed: Mapping[str, str], outcomes: Outcomes, over: type[object] | None = None) -> Counted:
    def series(outcome: str) -> Series:
        return Series(counter, {**fixed, names.OUTCOME: outcome})

    # A class alone has no arguments.
    classes: tuple[type[object], ...] = get_args(outcomes) or (cast("type[object]", outcomes),)
    table = {outcome: series(outcome_name(outcome)) for outcome in classes}
    return Counted(MappingProxyType(table), series(names.FAILURE), series(names.INTERRUPT), over)


def _by_status(outcomes: Outcomes, over: type[object]) -> Mapping[str, Counted]:
    # An unknown status is a caller's text. As an attribute it would make a series of every mistake.
    tables = {
        str(to): _counted(names.TRANSITIONS, {names.TO: str(to)}, outcomes, over if to in TERMINAL else None)
        for to in (*RunStatus, names.INVALID)
    }
    return MappingProxyType(tables)


CLAIM: Final = _counted(names.CLAIMS, {names.OP: "claim"}, run_contract.ClaimOutcome)
ACTIVATE: Final = _counted(names.CLAIMS, {names.OP: "activate"}, run_contract.ActivateOutcome)
ABANDON_CLAIM: Final = _counted(names.CLAIMS, {names.OP: "abandon_claim"}, run_contract.AbandonClaimOutcome)
RECOVER_CLAIM: Final = _counted(names.CLAIMS, {names.OP: "recover_claim"}, run_contract.RecoverClaimOutcome)
STEAL: Final = _counted(names.CLAIMS, {names.OP: "steal"}, run_contract.StealOutcome)
CLAIM_AND_OWN: Final = _counted(names.CLAIMS, {names.OP: "claim_and_own"}, run_contract.ClaimAndOwnOutcome)
ACQUIRE: Final = _counted(names.CLAIMS, {names.OP: "acquire"}, Acquired)
HEARTBEAT: Final = _counted(names.HEARTBEATS, {names.OP: "heartbeat"}, run_contract.HeartbeatOutcome)
RENEW: Final = _counted(names.HEARTBEATS, {names.OP: "renew"}, RenewOutcome)
TRANSITION_OWNED: Final = _by_status(run_contract.TransitionOutcome, run_contract.Transitioned)
SETTLE: Final = _by_status(SettleOutcome, Settled)
PARK: Final = _counted(names.TRANSITIONS, {names.TO: str(RunStatus.SUSPENDED)}, RunParkOutcome)
RETRY: Final = _counted(names.TRANSITIONS, {names.TO: str(RunStatus.SUSPENDED)}, RetryOutcome)
GIVE_UP: Final = _counted(names.TRANSITIONS, {names.TO: str(RunStatus.FAILED)}, ResolveOutcome, Resolved)


def to_status(given: object) -> str:
    """The requested status as spans and counters have it; ``invalid`` for an unknown one."""
    return str(given) if isinstance(given, str) and given in TRANSITION_OWNED else names.INVALID


def transition_owned(to: object) -> Counted:
    """Where a transition to this status is counted."""
    return TRANSITION_OWNED[to_status(to)]


def settle(status: object) -> Counted:
    """Where the end of a run with this status is counted."""
    return SETTLE[to_status(status)]


def resolve(resolution: Resolution) -> Counted | None:
    """Where a resolution is counted: ``give_up`` ends the run, the others change no status."""
    return GIVE_UP if isinstance(resolution, GiveUp) else None
