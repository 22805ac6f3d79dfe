"""The conformance suite: inherit it with a ``harness`` fixture, and it reports which promises a driver keeps.

``StoreConformance`` is the contract of ``RunStore`` and ``AttemptStore``, and ``SharedConformance`` the same between
several processes, for a driver whose databases they can share. A driver adds ``EngineConformance`` when it runs
workflows, with ``ProcessConformance`` in the place of ``SharedConformance``, and ``SchemaConformance`` when it keeps
belay's own tables. ``AuxiliaryConformance`` is for a driver that has the auxiliary stores: waits, journal, change feed,
retention, snapshots, and writes of several operations; ``EngineAuxiliaryConformance`` in its place when it runs
workflows, and ``SharedAuxiliaryConformance`` when processes share its databases. The name of a chapter selects its
tests: ``pytest -k CreateChapter``.
"""

from typing import ClassVar

from belay_testing.conformance.acquire import AcquireChapter
from belay_testing.conformance.acquire_rivals import AcquireRivalsChapter
from belay_testing.conformance.attempt_boundary import AttemptBoundaryChapter
from belay_testing.conformance.attempts import AttemptsChapter
from belay_testing.conformance.auxiliary_boundary import AuxiliaryBoundaryChapter
from belay_testing.conformance.boundary import BoundaryChapter
from belay_testing.conformance.cancel import CancelChapter
from belay_testing.conformance.change_feed import ChangeFeedChapter, SnapshotBatchesChapter
from belay_testing.conformance.claim_and_own import ClaimAndOwnChapter
from belay_testing.conformance.claim_rivals import ClaimRivalsChapter
from belay_testing.conformance.claims import ClaimsChapter
from belay_testing.conformance.composed_writes import ComposedWritesChapter
from belay_testing.conformance.contract_and_engine import ContractAndEngineChapter
from belay_testing.conformance.create import CreateChapter
from belay_testing.conformance.damage import DamageChapter
from belay_testing.conformance.engine_auxiliary import EngineAuxiliaryChapter
from belay_testing.conformance.gates import GatesChapter
from belay_testing.conformance.heartbeats import HeartbeatsChapter
from belay_testing.conformance.hindered_writes import HinderedWritesChapter
from belay_testing.conformance.journals import JournalChapter
from belay_testing.conformance.lineages import LineagesChapter
from belay_testing.conformance.lockstep import AuxiliaryLockstepChapter, EngineLockstepChapter, LockstepChapter
from belay_testing.conformance.nested_writes import NestedWritesChapter, WriteHooksChapter
from belay_testing.conformance.ownership_facts import OwnershipFactsChapter
from belay_testing.conformance.processes import ProcessesChapter
from belay_testing.conformance.reads import ReadsChapter
from belay_testing.conformance.record import RecordChapter
from belay_testing.conformance.release import ReleaseChapter
from belay_testing.conformance.resolve import ResolveChapter
from belay_testing.conformance.retention import RetentionChapter
from belay_testing.conformance.retry import RetryChapter
from belay_testing.conformance.run_pages import RunPagesChapter
from belay_testing.conformance.shared import SharedChapter
from belay_testing.conformance.shared_auxiliary import SharedAuxiliaryChapter
from belay_testing.conformance.snapshots import SnapshotsChapter
from belay_testing.conformance.start import StartChapter
from belay_testing.conformance.steal import StealChapter
from belay_testing.conformance.transitions import TransitionsChapter
from belay_testing.conformance.values import ValuesChapter
from belay_testing.conformance.waits import WaitsChapter
from belay_testing.conformance.wake import WakeChapter
from belay_testing.conformance.writes import WritesChapter
from belay_testing.harness import Gap, Harness, Tamper

__all__ = [
    "AuxiliaryConformance",
    "EngineAuxiliaryConformance",
    "EngineConformance",
    "Gap",
    "Harness",
    "ProcessConformance",
    "SchemaConformance",
    "SharedAuxiliaryConformance",
    "SharedConformance",
    "StoreConformance",
    "Tamper",
]


class StoreConformance(
    CreateChapter,
    ClaimAndOwnChapter,
    ClaimsChapter,
    StealChapter,
    HeartbeatsChapter,
    TransitionsChapter,
    CancelChapter,
    LineagesChapter,
    BoundaryChapter,
    ClaimRivalsChapter,
    AttemptsChapter,
    AttemptBoundaryChapter,
    ValuesChapter,
    LockstepChapter,
):
    """The contract: runs, their fenced ownership, and attempts."""

    answering: ClassVar = frozenset({"runs:contract", "attempts:contract"})


class EngineConformance(
    StartChapter,
    AcquireChapter,
    WakeChapter,
    RecordChapter,
    GatesChapter,
    ReleaseChapter,
    ResolveChapter,
    RetryChapter,
    ReadsChapter,
    AcquireRivalsChapter,
    ContractAndEngineChapter,
    EngineLockstepChapter,
):
    """The commands of the engine, and that contract and engine respect each other's writes."""

    answering: ClassVar = frozenset({"runs:engine", "attempts:engine", "approvals"})


class SharedConformance(SharedChapter):
    """Two openings of one database: the contract."""


class ProcessConformance(SharedConformance, ProcessesChapter):
    """Two openings of one database: the contract, and the commands of the engine."""


class AuxiliaryConformance(
    WaitsChapter,
    JournalChapter,
    OwnershipFactsChapter,
    ChangeFeedChapter,
    SnapshotBatchesChapter,
    RunPagesChapter,
    RetentionChapter,
    SnapshotsChapter,
    AuxiliaryBoundaryChapter,
    WritesChapter,
    NestedWritesChapter,
    WriteHooksChapter,
    ComposedWritesChapter,
    AuxiliaryLockstepChapter,
):
    """The auxiliary stores, and writes of several operations over all stores."""

    answering: ClassVar = frozenset({"waiting", "journal", "changes", "retention"})


class EngineAuxiliaryConformance(AuxiliaryConformance, EngineAuxiliaryChapter):
    """The same, and over runs of workflows."""


class SharedAuxiliaryConformance(SharedAuxiliaryChapter):
    """Two openings of one database: the auxiliary stores, and writes."""


class SchemaConformance(DamageChapter, HinderedWritesChapter):
    """Belay's own tables in SQL; the harness needs a ``tamper``."""
