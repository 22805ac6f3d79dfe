"""The stores beside runs, attempts and engine that are not there (``absent``)."""

from typing import NoReturn

from typing_extensions import override

from belay_core.errors import ChangesError, JournalError, RetentionError, StoreAbsent, WaitingStoreError
from belay_core.stores.absent import Absence
from belay_core.stores.changes import Changes
from belay_core.stores.journal import Journal
from belay_core.stores.retention import Retention
from belay_core.stores.snapshots import Snapshots
from belay_core.stores.waiting_store import WaitingStore


class AbsentWaitingStore(Absence, WaitingStore):
    """No waits."""

    @override
    async def park(self, *_given: object, **_named: object) -> NoReturn:
        raise WaitingStoreError("persistence_failed", "park", "no waiting store in this environment")

    @override
    async def wake(self, *_given: object, **_named: object) -> NoReturn:
        raise WaitingStoreError("persistence_failed", "wake", "no waiting store in this environment")

    @override
    async def waiting(self, *_given: object, **_named: object) -> NoReturn:
        raise WaitingStoreError("persistence_failed", "waiting", "no waiting store in this environment")

    @override
    async def waiting_runs(self, *_given: object, **_named: object) -> NoReturn:
        raise WaitingStoreError("persistence_failed", "waiting_runs", "no waiting store in this environment")


class AbsentJournal(Absence, Journal):
    """No journal."""

    @override
    async def append(self, *_given: object, **_named: object) -> NoReturn:
        raise JournalError("persistence_failed", "append", "no journal in this environment")

    @override
    async def read(self, *_given: object, **_named: object) -> NoReturn:
        raise JournalError("persistence_failed", "read", "no journal in this environment")

    @override
    async def ownership(self, *_given: object, **_named: object) -> NoReturn:
        raise JournalError("persistence_failed", "ownership", "no journal in this environment")


class AbsentChanges(Absence, Changes):
    """No change feed."""

    @override
    async def current(self, *_given: object, **_named: object) -> NoReturn:
        raise ChangesError("persistence_failed", "current", "no change feed in this environment")

    @override
    async def changes_since(self, *_given: object, **_named: object) -> NoReturn:
        raise ChangesError("persistence_failed", "changes_since", "no change feed in this environment")

    @override
    async def snapshot(self, *_given: object, **_named: object) -> NoReturn:
        raise ChangesError("persistence_failed", "snapshot", "no change feed in this environment")

    @override
    async def list_runs(self, *_given: object, **_named: object) -> NoReturn:
        raise ChangesError("persistence_failed", "list_runs", "no change feed in this environment")

    @override
    async def cancellation(self, *_given: object, **_named: object) -> NoReturn:
        raise ChangesError("persistence_failed", "cancellation", "no change feed in this environment")


class AbsentRetention(Absence, Retention):
    """Nothing is ever deleted."""

    @override
    async def delete(self, *_given: object, **_named: object) -> NoReturn:
        raise RetentionError("persistence_failed", "delete", "no retention in this environment")


class AbsentSnapshots(Absence, Snapshots):
    """No views that stand still."""

    @override
    def open(self) -> NoReturn:
        raise StoreAbsent("snapshots: these stores have none")
