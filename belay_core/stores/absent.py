"""Stores that are not there: what a driver leaves out, and what a test need not set up (specs, run store 13).

``make_noop`` gives a store whose every operation answers as if it knew no run, or raises. Single operations can be
replaced by name: ``AbsentRunStore.make_noop({"get": find})``.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, Self, TypeAlias

from typing_extensions import override

from belay_core.errors import (
    AttemptStoreError,
    EngineStoreError,
    InvalidInput,
    RunStoreError,
)
from belay_core.outcomes.runs import ClaimLost, NotFound
from belay_core.stores.attempt_store import AttemptStore
from belay_core.stores.engine_store import EngineStore
from belay_core.stores.run_store import RunStore

Overrides: TypeAlias = Mapping[str, Callable[..., Awaitable[Any]]]
"""Operations by their names."""


class Absence:
    """How every one of them is made."""

    @classmethod
    def make_noop(cls, overrides: Overrides | None = None) -> Self:
        """A store of this kind with these operations in the place of its own.

        Raises ``InvalidInput`` for a name that is no operation of it.
        """
        store = cls()
        for name, operation in (overrides or {}).items():
            if name.startswith("_") or not inspect.iscoroutinefunction(getattr(cls, name, None)):
                raise InvalidInput("overrides", "names something that is no operation of this store")
            setattr(store, name, operation)
        return store


class AbsentRunStore(Absence, RunStore):
    """No runs."""

    @override
    async def get(self, *_given: object, **_named: object) -> NoReturn:
        _no_run_store("get")

    @override
    async def create(self, *_given: object, **_named: object) -> NoReturn:
        _no_run_store("create")

    @override
    async def lineage(self, *_given: object, **_named: object) -> NoReturn:
        _no_run_store("lineage")

    @override
    async def latest_round(self, *_given: object, **_named: object) -> NoReturn:
        _no_run_store("latest_round")

    @override
    async def request_cancel_lineage(self, *_given: object, **_named: object) -> NoReturn:
        _no_run_store("request_cancel_lineage")

    @override
    async def activate(self, *_given: object, **_named: object) -> ClaimLost:
        return ClaimLost()

    @override
    async def abandon_claim(self, *_given: object, **_named: object) -> ClaimLost:
        return ClaimLost()

    @override
    async def acknowledge_cancel(self, *_given: object, **_named: object) -> bool:
        return False

    @override
    async def request_cancel(self, *_given: object, **_named: object) -> NotFound:
        return NotFound()

    @override
    async def claim(self, *_given: object, **_named: object) -> NotFound:
        return NotFound()

    @override
    async def claim_and_own(self, *_given: object, **_named: object) -> NotFound:
        return NotFound()

    @override
    async def recover_claim(self, *_given: object, **_named: object) -> NotFound:
        return NotFound()

    @override
    async def heartbeat(self, *_given: object, **_named: object) -> NotFound:
        return NotFound()

    @override
    async def reconfirm(self, *_given: object, **_named: object) -> NotFound:
        return NotFound()

    @override
    async def transition_owned(self, *_given: object, **_named: object) -> NotFound:
        return NotFound()

    @override
    async def steal(self, *_given: object, **_named: object) -> NotFound:
        return NotFound()


def _no_run_store(method: str) -> NoReturn:
    raise RunStoreError("persistence_failed", method, "no run store in this environment")


class AbsentAttemptStore(Absence, AttemptStore):
    """No attempts, under whatever options."""

    @override
    def make_with(self, *_given: object, **_named: object) -> Self:
        return self

    @override
    async def put(self, *_given: object, **_named: object) -> NoReturn:
        _no_attempt_store("put")

    @override
    async def get(self, *_given: object, **_named: object) -> NoReturn:
        _no_attempt_store("get")

    @override
    async def finish(self, *_given: object, **_named: object) -> NoReturn:
        _no_attempt_store("finish")

    @override
    async def heartbeat(self, *_given: object, **_named: object) -> NoReturn:
        _no_attempt_store("heartbeat")

    @override
    async def patch(self, *_given: object, **_named: object) -> NoReturn:
        _no_attempt_store("patch")


def _no_attempt_store(method: str) -> NoReturn:
    raise AttemptStoreError("unknown", method, "the store is unavailable in this environment")


class AbsentEngineStore(Absence, EngineStore):
    """No engine: a driver that keeps the contract alone. A ``Worker`` refuses it."""

    @override
    async def renew(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("renew")

    @override
    async def record(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("record")

    @override
    async def ask(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("ask")

    @override
    async def sleep(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("sleep")

    @override
    async def withdraw(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("withdraw")

    @override
    async def lapse(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("lapse")

    @override
    async def park(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("park")

    @override
    async def settle(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("settle")

    @override
    async def start(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("start")

    @override
    async def acquire(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("acquire")

    @override
    async def wake(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("wake")

    @override
    async def decide(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("decide")

    @override
    async def cancel(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("cancel")

    @override
    async def resolve(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("resolve")

    @override
    async def history(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("history")

    @override
    async def find_run(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("find_run")

    @override
    async def list_runs(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("list_runs")

    @override
    async def list_approvals(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("list_approvals")

    @override
    async def find_approval(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("find_approval")

    @override
    async def journal(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("journal")

    @override
    async def running_owners(self, *_given: object, **_named: object) -> NoReturn:
        _no_engine_store("running_owners")


def _no_engine_store(method: str) -> NoReturn:
    raise EngineStoreError("persistence_failed", method, "no engine store in this environment")
