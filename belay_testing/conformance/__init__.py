"""The conformance suite: inherit it, hand it a harness, and it says what a driver keeps and what it does not.

``StoreConformance`` is the contract of ``RunStore`` and ``AttemptStore``, and ``SharedConformance`` the same between
several processes, for a driver whose databases they can share. A driver adds ``EngineConformance`` when it runs
workflows, with ``ProcessConformance`` in the place of ``SharedConformance``, and ``SchemaConformance`` when it keeps
belay's own tables. ``BesideConformance`` is for a driver that has what stands beside runs and attempts: waits, journal,
feed, retention, snapshots, and writes of several operations; ``EngineBesideConformance`` in its place when it runs
workflows, and ``SharedBesideConformance`` when processes share its databases. The name of a chapter selects its tests:
``pytest -k Creating``.
"""

from typing import ClassVar

from belay_testing.conformance.acquire import Acquiring
from belay_testing.conformance.acquire_rivals import Crowds
from belay_testing.conformance.attempt_boundary import AttemptBoundary
from belay_testing.conformance.attempts import Attempts
from belay_testing.conformance.auxiliary_boundary import BesideBoundary
from belay_testing.conformance.boundary import Boundary
from belay_testing.conformance.cancel import Cancelling
from belay_testing.conformance.change_feed import Batches, Following
from belay_testing.conformance.claim_and_own import Owning
from belay_testing.conformance.claim_rivals import Rivals
from belay_testing.conformance.claims import Claims
from belay_testing.conformance.composed_writes import Stories
from belay_testing.conformance.contract_and_engine import Faces
from belay_testing.conformance.create import Creating
from belay_testing.conformance.damage import Damage
from belay_testing.conformance.engine_auxiliary import EngineBeside
from belay_testing.conformance.gates import Gates
from belay_testing.conformance.heartbeats import Heartbeats
from belay_testing.conformance.hindered_writes import Guarded
from belay_testing.conformance.journals import Journals
from belay_testing.conformance.lineages import Lineages
from belay_testing.conformance.lockstep import BesideLockstep, EngineLockstep, Lockstep
from belay_testing.conformance.nested_writes import Hooks, Levels
from belay_testing.conformance.ownership_facts import Facts
from belay_testing.conformance.processes import Processes
from belay_testing.conformance.reads import Histories
from belay_testing.conformance.record import RecordOp
from belay_testing.conformance.release import Ending
from belay_testing.conformance.resolve import Resolving
from belay_testing.conformance.retention import Retaining
from belay_testing.conformance.run_pages import Listings
from belay_testing.conformance.shared import Shared
from belay_testing.conformance.shared_auxiliary import SharedBeside
from belay_testing.conformance.snapshots import Moments
from belay_testing.conformance.start import Starting
from belay_testing.conformance.steal import Stealing
from belay_testing.conformance.transitions import Transitions
from belay_testing.conformance.values import Values
from belay_testing.conformance.waits import Waits
from belay_testing.conformance.wake import Waking
from belay_testing.conformance.writes import Writes
from belay_testing.harness import Gap, Harness, Tamper

__all__ = [
    "BesideConformance",
    "EngineBesideConformance",
    "EngineConformance",
    "Gap",
    "Harness",
    "ProcessConformance",
    "SchemaConformance",
    "SharedBesideConformance",
    "SharedConformance",
    "StoreConformance",
    "Tamper",
]


class StoreConformance(
    Creating,
    Owning,
    Claims,
    Stealing,
    Heartbeats,
    Transitions,
    Cancelling,
    Lineages,
    Boundary,
    Rivals,
    Attempts,
    AttemptBoundary,
    Values,
    Lockstep,
):
    """The contract: runs, their fenced ownership, and attempts."""

    answering: ClassVar = frozenset({"runs:contract", "attempts:contract"})


class EngineConformance(
    Starting, Acquiring, Waking, RecordOp, Gates, Ending, Resolving, Histories, Crowds, Faces, EngineLockstep
):
    """The commands of the engine, and that both faces of a database respect each other."""

    answering: ClassVar = frozenset({"runs:engine", "attempts:engine", "approvals"})


class SharedConformance(Shared):
    """Two openings of one database: the contract."""


class ProcessConformance(SharedConformance, Processes):
    """Two openings of one database: the contract, and the commands of the engine."""


class BesideConformance(
    Waits,
    Journals,
    Facts,
    Following,
    Batches,
    Listings,
    Retaining,
    Moments,
    BesideBoundary,
    Writes,
    Levels,
    Hooks,
    Stories,
    BesideLockstep,
):
    """The stores beside runs and attempts, and writes of several operations over all of them."""

    answering: ClassVar = frozenset({"waiting", "journal", "changes", "retention"})


class EngineBesideConformance(BesideConformance, EngineBeside):
    """The same, and over runs of workflows."""


class SharedBesideConformance(SharedBeside):
    """Two openings of one database: the stores beside runs and attempts, and writes."""


class SchemaConformance(Damage, Guarded):
    """Belay's own tables in SQL; the harness needs a ``tamper``."""
