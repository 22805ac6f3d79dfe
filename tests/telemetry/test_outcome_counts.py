"""How answers are spelled and counted: every outcome of every counted operation, and nothing else."""

import inspect
from typing import get_args, get_type_hints

import pytest

from belay_core.errors import RunStoreError, StoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import OwnerId
from belay_core.records.run import TERMINAL, RunStatus
from belay_core.stores import approvals, attempts, run_contract, runs
from belay_core.stores.attempts import RunNotFound
from belay_core.stores.run_contract import EvidenceRequired, FenceLost, GuardFailed, Transitioned
from belay_core.stores.runs import NotInReview, Renewed, Resolved, RunParked, RunStore, Settled
from belay_core.telemetry import outcome_counts

TABLES = [
    ("belay.run.claims", {"op": "claim_and_own"}, RunStore.claim_and_own, outcome_counts.CLAIM_AND_OWN),
    ("belay.run.claims", {"op": "claim"}, RunStore.claim, outcome_counts.CLAIM),
    ("belay.run.claims", {"op": "activate"}, RunStore.activate, outcome_counts.ACTIVATE),
    ("belay.run.claims", {"op": "abandon_claim"}, RunStore.abandon_claim, outcome_counts.ABANDON_CLAIM),
    ("belay.run.claims", {"op": "recover_claim"}, RunStore.recover_claim, outcome_counts.RECOVER_CLAIM),
    ("belay.run.claims", {"op": "steal"}, RunStore.steal, outcome_counts.STEAL),
    ("belay.run.heartbeats", {"op": "heartbeat"}, RunStore.reconfirm, outcome_counts.HEARTBEAT),
    ("belay.run.claims", {"op": "acquire"}, RunStore.acquire, outcome_counts.ACQUIRE),
    ("belay.run.heartbeats", {"op": "heartbeat"}, RunStore.heartbeat, outcome_counts.HEARTBEAT),
    ("belay.run.heartbeats", {"op": "renew"}, RunStore.renew, outcome_counts.RENEW),
    ("belay.run.transitions", {"to": "suspended"}, RunStore.park, outcome_counts.PARK),
    ("belay.run.transitions", {"to": "failed"}, RunStore.resolve, outcome_counts.GIVE_UP),
    ("belay.run.transitions", {"to": "suspended"}, RunStore.retry, outcome_counts.RETRY),
    *(
        ("belay.run.transitions", {"to": to}, operation, table[to])
        for operation, table in (
            (RunStore.transition_owned, outcome_counts.TRANSITION_OWNED),
            (RunStore.settle, outcome_counts.SETTLE),
        )
        for to in (*map(str, RunStatus), "invalid")
    ),
]


def outcome_classes() -> set[type]:
    return {
        member
        for module in (approvals, attempts, run_contract, runs)
        for member in vars(module).values()
        if inspect.isclass(member) and member.__module__.startswith("belay_core.stores.")
    }


def answered(operation: object) -> set[type]:
    """The classes an operation answers with, from its signature; those of a tuple's members."""
    hint = get_type_hints(operation)["return"]
    if getattr(hint, "__origin__", None) is tuple:
        hint = get_args(hint)[0]
    return set(get_args(hint) or (hint,))


@pytest.mark.parametrize(("counter", "fixed", "operation", "table"), TABLES)
def test_a_table_has_exactly_the_outcomes_of_its_operation(counter, fixed, operation, table):
    assert set(table.answers) == answered(operation)
    for outcome, series in table.answers.items():
        assert series.counter == counter
        assert series.attributes == {**fixed, "outcome": outcome_counts.outcome_name(outcome)}
    assert table.failure.attributes == {**fixed, "outcome": "failure"}
    assert table.interrupt.attributes == {**fixed, "outcome": "interrupt"}


def test_the_series_of_the_contract_are_as_many_as_it_says():
    claims = (
        outcome_counts.CLAIM,
        outcome_counts.CLAIM_AND_OWN,
        outcome_counts.ACTIVATE,
        outcome_counts.ABANDON_CLAIM,
        outcome_counts.RECOVER_CLAIM,
        outcome_counts.STEAL,
    )
    assert [len(table.answers) for table in claims] == [5, 6, 3, 2, 5, 6]
    assert len({tuple(each.attributes.items()) for table in claims for each in table.answers.values()}) == 27
    assert len(outcome_counts.HEARTBEAT.answers) == 3
    assert sum(len(outcome_counts.TRANSITION_OWNED[status].answers) for status in RunStatus) == 24


def test_every_outcome_has_a_name_of_its_own():
    spelled = {outcome_counts.outcome_name(outcome) for outcome in outcome_classes()}
    assert len(spelled) == len(outcome_classes()) > 30
    assert {"fence_lost", "run_id_taken", "activated", "no_such_approval"} <= spelled


def test_only_the_end_of_a_run_adds_to_the_throughput():
    for status in RunStatus:
        over = status in TERMINAL
        assert outcome_counts.transition_owned(status).over is (Transitioned if over else None)
        assert outcome_counts.settle(status).over is (Settled if over else None)
    assert outcome_counts.PARK.over is None
    assert outcome_counts.GIVE_UP.over is Resolved


@pytest.mark.parametrize("given", ["done", "", "COMPLETED", None, 4, object(), ["completed"]])
def test_a_status_that_is_none_makes_no_series_of_its_own(given):
    assert outcome_counts.to_status(given) == "invalid"
    assert outcome_counts.transition_owned(given) is outcome_counts.TRANSITION_OWNED["invalid"]


COUNTED = {
    "run_store.claim": outcome_counts.CLAIM,
    "run_store.activate": outcome_counts.ACTIVATE,
    "run_store.abandon_claim": outcome_counts.ABANDON_CLAIM,
    "run_store.recover_claim": outcome_counts.RECOVER_CLAIM,
    "run_store.steal": outcome_counts.STEAL,
    "run_store.claim_and_own": outcome_counts.CLAIM_AND_OWN,
    "run_store.heartbeat": outcome_counts.HEARTBEAT,
    "run_store.reconfirm": outcome_counts.HEARTBEAT,
    "run_store.transition_owned": outcome_counts.TRANSITION_OWNED["completed"],
    "run_store.acquire": outcome_counts.ACQUIRE,
    "run_store.renew": outcome_counts.RENEW,
    "run_store.park": outcome_counts.PARK,
    "run_store.settle": outcome_counts.SETTLE["completed"],
}


@pytest.mark.parametrize(
    ("operation", "outcome"), [(name, outcome) for name, table in COUNTED.items() for outcome in table.answers]
)
async def test_every_answer_is_counted_in_its_series_and_nowhere_else(watched, examples, operation, outcome):
    table, answer = COUNTED[operation], object.__new__(outcome)
    await watched.do(examples[f"belay.{operation}"], (answer,) if operation.endswith(("acquire", "renew")) else answer)
    series = table.answers[outcome]
    labels = ",".join(f"{key}={value}" for key, value in sorted(series.attributes.items()))
    over = {"belay.run.throughput": 1} if outcome is table.over else {}
    assert watched.counted() == {f"{series.counter}{{{labels}}}": 1, **over}


async def test_what_was_counted(watched, examples):
    run = "belay.run_store."
    claim = examples[f"{run}claim_and_own"]
    await watched.do(claim)
    await watched.do(claim)
    await watched.do(claim, EvidenceRequired())
    await watched.do(examples[f"{run}heartbeat"])
    await watched.do(examples[f"{run}acquire"])
    await watched.do(examples[f"{run}renew"], (Renewed(None, None), Renewed(None, None), RunNotFound()))
    await watched.do(examples[f"{run}park"])
    await watched.do(examples[f"{run}settle"])
    await watched.do(examples[f"{run}transition_owned"])
    await watched.do(examples[f"{run}transition_owned"], GuardFailed())
    assert watched.counted() == {
        "belay.run.claims{op=acquire,outcome=acquired}": 1,
        "belay.run.claims{op=claim_and_own,outcome=activated}": 2,
        "belay.run.claims{op=claim_and_own,outcome=evidence_required}": 1,
        "belay.run.heartbeats{op=heartbeat,outcome=updated}": 1,
        "belay.run.heartbeats{op=renew,outcome=renewed}": 2,
        "belay.run.heartbeats{op=renew,outcome=run_not_found}": 1,
        "belay.run.throughput": 2,
        "belay.run.transitions{outcome=guard_failed,to=completed}": 1,
        "belay.run.transitions{outcome=run_parked,to=suspended}": 1,
        "belay.run.transitions{outcome=settled,to=completed}": 1,
        "belay.run.transitions{outcome=transitioned,to=completed}": 1,
    }


async def test_what_is_not_the_end_of_a_run_adds_nothing_to_the_throughput(watched, examples):
    transition = watched.stores.runs.transition_owned
    owner = OwnerId("host-a", 7, "nonce-1")
    for answer, to in ((Transitioned(), RunStatus.SUSPENDED), (FenceLost(), RunStatus.COMPLETED)):
        watched.behind.answer = answer
        await transition(RunId("run-1"), owner, to)
    await watched.do(examples["belay.run_store.settle"], FenceLost())
    await watched.do(examples["belay.run_store.park"], RunParked())
    assert "belay.run.throughput" not in watched.counted()


async def test_an_operator_who_gives_up_ends_a_run(watched):
    for answer, resolution in (
        (Resolved(1), commands.GiveUp()),
        (NotInReview(), commands.GiveUp()),
        (Resolved(1), commands.Retry()),
        (Resolved(1), commands.Happened("1")),
    ):
        watched.behind.answer = answer
        await watched.stores.runs.resolve(commands.Resolve(RunId("run-1"), resolution, "operator"))
    assert watched.counted() == {
        "belay.run.throughput": 1,
        "belay.run.transitions{outcome=not_in_review,to=failed}": 1,
        "belay.run.transitions{outcome=resolved,to=failed}": 1,
    }
    assert [span.attributes["resolution"] for span in watched.spans] == ["give_up", "give_up", "retry", "happened"]


async def test_a_call_that_broke_off_is_counted_as_such(watched, examples):
    for name in ("run_store.claim_and_own", "run_store.renew", "run_store.settle"):
        with pytest.raises(StoreError):
            await watched.do(examples[f"belay.{name}"], StoreError("persistence_failed", "x", "gone"))
    watched.behind.answer = RunStoreError("invalid_run", "transition_owned", "run input is invalid")
    with pytest.raises(RunStoreError):
        await watched.stores.runs.transition_owned("run-1", None, "4711-is-a-secret")
    assert watched.counted() == {
        "belay.run.claims{op=claim_and_own,outcome=failure}": 1,
        "belay.run.heartbeats{op=renew,outcome=failure}": 2,
        "belay.run.transitions{outcome=failure,to=completed}": 1,
        "belay.run.transitions{outcome=failure,to=invalid}": 1,
    }


async def test_operations_that_own_nothing_are_not_counted(watched, example):
    counted = {"claim_and_own", "heartbeat", "transition_owned", "acquire", "renew", "park", "settle"}
    counted |= {"claim", "activate", "abandon_claim", "recover_claim", "steal", "reconfirm", "retry"}
    if example.operation not in counted or example.store == "attempt":
        await watched.do(example)
        assert watched.counted() == {}
