"""Absent stores: those that a driver leaves out, or that a test does not set up (specs, run store 13).

``make_noop`` makes a store whose every operation answers as if no run existed, or raises. Single operations can be
replaced by name: ``AbsentRunStore.make_noop({"get": find})``.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, Self, TypeAlias

from typing_extensions import override

from belay_core.errors import (
    ApprovalStoreError,
    AttemptStoreError,
    ChangesError,
    InvalidInput,
    JournalError,
    RetentionError,
    RunStoreError,
    StoreAbsent,
    StoreError,
    WaitingStoreError,
)
from belay_core.stores.approvals import ApprovalStore
from belay_core.stores.attempts import AttemptContract, AttemptStore
from belay_core.stores.changes import Changes
from belay_core.stores.journal import Journal
from belay_core.stores.retention import Retention
from belay_core.stores.run_contract import ClaimLost, NotFound, RunContract
from belay_core.stores.runs import RunStore
from belay_core.stores.snapshots import Snapshots
from belay_core.stores.waiting import WaitingStore

Overrides: TypeAlias = Mapping[str, Callable[..., Awaitable[Any]]]
"""Operations by their names."""
Answers: TypeAlias = Mapping[str, Callable[[], object]]
"""The results of some operations, by their names."""


class Absence:
    """The constructor of every absent store."""

    @classmethod
    def make_noop(cls, overrides: Overrides | None = None) -> Self:
        """A store of this kind with these operations instead of its own.

        Raises ``InvalidInput`` for a name that is no operation of it.
        """
        store = cls()
        for name, operation in (overrides or {}).items():
            if name.startswith("_") or not inspect.iscoroutinefunction(getattr(cls, name, None)):
                raise InvalidInput("overrides", "names something that is no operation of this store")
            setattr(store, name, operation)
        return store


def _absent(
    protocol: Any, error: type[StoreError], code: str, detail: str, answers: Answers | None = None, base: Any = Absence
) -> Any:
    """A class of this protocol whose every operation returns its answer, or raises the error."""
    known = answers or {}
    methods = {
        name: _operation(name, known.get(name), error, code, detail)
        for name in protocol.__abstractmethods__
        if not hasattr(base, name)
    }
    return type(f"Absent{protocol.__name__}", (base, protocol), methods)


def _operation(
    name: str, answer: Callable[[], object] | None, error: type[StoreError], code: str, detail: str
) -> Callable[..., Awaitable[object]]:
    async def operation(*_given: object, **_named: object) -> object:
        if answer is None:
            raise error(code, name, detail)
        return answer()

    operation.__name__ = name
    return operation


class _ContractAlone:
    """Forwards the contract's operations to a store that implements only those."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def make_with(self, options: object) -> Self:
        return type(self)(self.store.make_with(options))


def _forwarding(contract: Any) -> type[_ContractAlone]:
    def forward(name: str) -> Callable[..., Awaitable[object]]:
        async def operation(self: _ContractAlone, *given: object, **named: object) -> object:
            answer: object = await getattr(self.store, name)(*given, **named)
            return answer

        operation.__name__ = name
        return operation

    names = (name for name in contract.__abstractmethods__ if name != "make_with")
    return type(f"{contract.__name__}Alone", (_ContractAlone,), {name: forward(name) for name in names})


class _AnyOptions(Absence):
    def make_with(self, *_given: object, **_named: object) -> Self:
        return self


_UNKNOWN: Final = (
    *("request_cancel", "claim", "claim_and_own", "recover_claim"),
    *("heartbeat", "reconfirm", "transition_owned", "steal"),
)
_RUNS: Final[Answers] = {
    "acknowledge_cancel": bool,
    "activate": ClaimLost,
    "abandon_claim": ClaimLost,
    **dict.fromkeys(_UNKNOWN, NotFound),
}

AbsentRunStore = _absent(RunStore, RunStoreError, "persistence_failed", "no run store in this environment", _RUNS)
"""No runs."""
AbsentAttemptStore = _absent(
    AttemptStore, AttemptStoreError, "unknown", "the store is unavailable in this environment", base=_AnyOptions
)
"""No attempts, under whatever options."""
AbsentApprovalStore = _absent(
    ApprovalStore, ApprovalStoreError, "persistence_failed", "no approval store in this environment"
)
"""No approvals: a driver that implements only the contract. A ``Worker`` refuses it."""
AbsentWaitingStore = _absent(
    WaitingStore, WaitingStoreError, "persistence_failed", "no waiting store in this environment"
)
"""No waits."""
AbsentJournal = _absent(Journal, JournalError, "persistence_failed", "no journal in this environment")
"""No journal."""
AbsentChanges = _absent(Changes, ChangesError, "persistence_failed", "no change feed in this environment")
"""No change feed."""
AbsentRetention = _absent(Retention, RetentionError, "persistence_failed", "no retention in this environment")
"""Nothing is ever deleted."""


class AbsentSnapshots(Absence, Snapshots):
    """No snapshots."""

    @override
    def open(self) -> NoReturn:
        raise StoreAbsent("snapshots: these stores have none")


contract_runs: Final[Callable[[RunContract], RunStore]] = _absent(
    RunStore,
    RunStoreError,
    "persistence_failed",
    "this driver keeps the contract's part alone",
    base=_forwarding(RunContract),
)
"""A run store of a driver that implements only the contract's part: the engine's operations raise."""
contract_attempts: Final[Callable[[AttemptContract], AttemptStore]] = _absent(
    AttemptStore,
    AttemptStoreError,
    "persistence_failed",
    "this driver keeps the contract's part alone",
    base=_forwarding(AttemptContract),
)
"""The same for attempts."""
