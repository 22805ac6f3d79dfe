"""Stores that are not there answer as the contract says, and say so where they cannot."""

import inspect
from dataclasses import replace

import pytest

from belay_core import Worker, workflow
from belay_core.clock import SystemClock
from belay_core.errors import (
    ApprovalStoreError,
    AttemptStoreError,
    ChangesError,
    InvalidInput,
    JournalError,
    RetentionError,
    RunStoreError,
    StoreAbsent,
    WaitingStoreError,
)
from belay_core.ids import RunId
from belay_core.records.attempt import AttemptStoreOptions
from belay_core.records.owner import OwnerId
from belay_core.stores import ApprovalStore, AttemptStore, RunContract, RunStore, Stores
from belay_core.stores.absent import AbsentApprovalStore, AbsentAttemptStore, AbsentRunStore
from belay_core.stores.run_contract import ClaimLost, NotFound, Updated
from belay_core.telemetry import observed
from belay_testing.ids import SequentialIds

RUN, A = RunId("run"), OwnerId("host-a", 101, "owner-a")


def operations(protocol):
    return {name for name in dir(protocol) if inspect.iscoroutinefunction(getattr(protocol, name))}


def arguments(operation):
    wanted = inspect.signature(operation).parameters.values()
    return [None for each in wanted if each.name != "self" and each.default is inspect.Parameter.empty]


async def asked(store, protocol, name):
    return await getattr(store, name)(*arguments(getattr(protocol, name)))


RAISING = {"create", "get", "lineage", "latest_round", "request_cancel_lineage"}
ANSWERS = {"activate": ClaimLost(), "abandon_claim": ClaimLost(), "acknowledge_cancel": False}


@pytest.mark.parametrize("name", sorted(operations(RunStore)))
async def test_without_runs_reads_fail_and_nobody_owns_anything(name):
    store = AbsentRunStore.make_noop()
    if name not in RAISING and name in operations(RunContract):
        assert await asked(store, RunStore, name) == ANSWERS.get(name, NotFound())
        return
    with pytest.raises(RunStoreError) as absent:
        await asked(store, RunStore, name)
    assert str(absent.value) == f"persistence_failed: RunStore.{name}: no run store in this environment"
    assert absent.value.cause is None


@pytest.mark.parametrize("name", sorted(operations(AttemptStore)))
async def test_without_attempts_everything_fails_under_any_options(name):
    store = AbsentAttemptStore.make_noop().make_with(AttemptStoreOptions())
    with pytest.raises(AttemptStoreError) as absent:
        await asked(store, AttemptStore, name)
    assert str(absent.value) == f"unknown: AttemptStore.{name}: the store is unavailable in this environment"


@pytest.mark.parametrize("name", sorted(operations(ApprovalStore)))
async def test_without_approvals_every_command_fails(name):
    with pytest.raises(ApprovalStoreError) as absent:
        await asked(AbsentApprovalStore.make_noop(), ApprovalStore, name)
    assert str(absent.value) == f"persistence_failed: ApprovalStore.{name}: no approval store in this environment"


async def test_single_operations_can_be_replaced():
    async def beat(*_given):
        return Updated()

    store: RunStore = AbsentRunStore.make_noop({"heartbeat": beat})
    assert await store.heartbeat(RUN, A, 1) == Updated()
    assert await store.reconfirm(RUN, A, 1) == NotFound()
    assert await AbsentRunStore.make_noop().heartbeat(RUN, A, 1) == NotFound()


@pytest.mark.parametrize("name", ["hearbeat", "make_noop", "__init__", "_private"])
async def test_what_is_no_operation_cannot_be_replaced(name):
    async def beat(*_given):
        return Updated()

    with pytest.raises(InvalidInput, match="overrides"):
        AbsentRunStore.make_noop({name: beat})


def bare():
    """The stores of a driver that keeps the contract alone."""
    runs, attempts = AbsentRunStore.make_noop(), AbsentAttemptStore.make_noop()
    return Stores(runs, attempts, SystemClock(), SequentialIds())


BESIDE = [
    ("waiting", "park", 3, WaitingStoreError),
    ("waiting", "wake", 1, WaitingStoreError),
    ("waiting", "waiting", 1, WaitingStoreError),
    ("waiting", "waiting_runs", 0, WaitingStoreError),
    ("journal", "append", 4, JournalError),
    ("journal", "read", 1, JournalError),
    ("journal", "ownership", 1, JournalError),
    ("changes", "current", 0, ChangesError),
    ("changes", "changes_since", 2, ChangesError),
    ("changes", "snapshot", 1, ChangesError),
    ("changes", "list_runs", 0, ChangesError),
    ("changes", "cancellation", 1, ChangesError),
    ("retention", "delete", 1, RetentionError),
]


@pytest.mark.parametrize(("store", "name", "count", "error"), BESIDE)
async def test_a_driver_need_not_have_the_stores_beside(store, name, count, error):
    with pytest.raises(error, match=f"persistence_failed: {error.store}.{name}: no .* in this environment"):
        await getattr(getattr(bare(), store), name)(*[None] * count)


async def test_a_driver_need_not_have_snapshots():
    with pytest.raises(StoreAbsent, match="snapshots"):
        async with bare().snapshot():
            pass


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("background", [False, True])
async def test_a_worker_refuses_stores_without_an_engine(belay_stores, watched, background):
    @workflow("nothing")
    async def nothing(ctx) -> None:
        """Do nothing."""

    async with belay_stores as stores:
        less = replace(stores, approvals=AbsentApprovalStore.make_noop())
        with pytest.raises(StoreAbsent, match="engine"):
            Worker(observed(less) if watched else less, [nothing], background=background)
        async with Worker(stores, [nothing], background=False):
            pass
