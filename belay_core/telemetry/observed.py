"""Observe the stores of a bundle."""

from dataclasses import replace
from typing import TypedDict

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from belay_core.stores.absent import AbsentApprovalStore
from belay_core.stores.bundle import Stores
from belay_core.stores.changes import Changes
from belay_core.stores.journal import Journal
from belay_core.stores.retention import Retention
from belay_core.stores.snapshots import Snapshots
from belay_core.stores.waiting import WaitingStore
from belay_core.telemetry.instruments import Instruments, instruments
from belay_core.telemetry.stores import (
    Observed,
    ObservedApprovalStore,
    ObservedAttemptStore,
    ObservedChanges,
    ObservedJournal,
    ObservedRetention,
    ObservedRunStore,
    ObservedSnapshots,
    ObservedWaitingStore,
    ObservedWriter,
)


def observed(
    stores: Stores,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Stores:
    """The same stores with a span and a count of each operation; the global providers unless others are given.

    Outcomes and exceptions are those of the store, unchanged. A store that is observed already is left unchanged,
    and so are approvals that are absent.
    """
    tools = instruments(tracer_provider, meter_provider)
    runs, attempts, approvals, writer = stores.runs, stores.attempts, stores.approvals, stores.writer
    joins = stores.joins

    def joined(connection: object) -> Stores:
        inside = observed(stores.within(connection), tracer_provider=tracer_provider, meter_provider=meter_provider)
        # A store that offers few operations is an absent one with exceptions.
        few = inside.approvals
        observing = few if isinstance(few, Observed) else ObservedApprovalStore(few, tools, inside.runs)
        return replace(inside, approvals=observing)

    return replace(
        stores,
        joins=None if joins is None else joined,
        runs=runs if isinstance(runs, Observed) else ObservedRunStore(runs, tools),
        attempts=attempts if isinstance(attempts, Observed) else ObservedAttemptStore(attempts, tools),
        approvals=approvals
        if isinstance(approvals, Observed | AbsentApprovalStore)
        else ObservedApprovalStore(approvals, tools, runs),
        writer=writer if isinstance(writer, Observed) else ObservedWriter(writer, tools),
        **_auxiliary(stores, tools),
    )


class _Auxiliary(TypedDict):
    """All stores but runs, attempts and approvals."""

    waiting: WaitingStore
    journal: Journal
    changes: Changes
    retention: Retention
    snapshots: Snapshots


def _auxiliary(stores: Stores, tools: Instruments) -> _Auxiliary:
    waiting, journal, changes = stores.waiting, stores.journal, stores.changes
    retention, snapshots = stores.retention, stores.snapshots
    return {
        "waiting": waiting if isinstance(waiting, Observed) else ObservedWaitingStore(waiting, tools),
        "journal": journal if isinstance(journal, Observed) else ObservedJournal(journal, tools),
        "changes": changes if isinstance(changes, Observed) else ObservedChanges(changes, tools),
        "retention": retention if isinstance(retention, Observed) else ObservedRetention(retention, tools),
        "snapshots": snapshots if isinstance(snapshots, Observed) else ObservedSnapshots(snapshots, tools),
    }
