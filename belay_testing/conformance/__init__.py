"""The conformance suite: inherit it, hand it a harness, and it says what a driver keeps and what it does not.

``StoreConformance`` is the contract of ``RunStore`` and ``AttemptStore``. A driver adds ``EngineConformance`` when it
runs workflows, ``ProcessConformance`` when several processes can share one of its databases, and ``SchemaConformance``
when it keeps belay's own tables.
"""

from typing import ClassVar

from belay_testing.conformance.acquiring import Acquiring
from belay_testing.conformance.attempt_boundary import AttemptBoundary
from belay_testing.conformance.attempts import Attempts
from belay_testing.conformance.boundary import Boundary
from belay_testing.conformance.cancelling import Cancelling
from belay_testing.conformance.claims import Claims
from belay_testing.conformance.creating import Creating
from belay_testing.conformance.crowds import Crowds
from belay_testing.conformance.damage import Damage
from belay_testing.conformance.ending import Ending
from belay_testing.conformance.faces import Faces
from belay_testing.conformance.facts import Facts
from belay_testing.conformance.gates import Gates
from belay_testing.conformance.guarded import Guarded
from belay_testing.conformance.heartbeats import Heartbeats
from belay_testing.conformance.histories import Histories
from belay_testing.conformance.lineages import Lineages
from belay_testing.conformance.lockstep import EngineLockstep, Lockstep
from belay_testing.conformance.owning import Owning
from belay_testing.conformance.processes import Processes
from belay_testing.conformance.recording import Recording
from belay_testing.conformance.resolving import Resolving
from belay_testing.conformance.rivals import Rivals
from belay_testing.conformance.starting import Starting
from belay_testing.conformance.stealing import Stealing
from belay_testing.conformance.transitions import Transitions
from belay_testing.conformance.values import Values
from belay_testing.conformance.waking import Waking
from belay_testing.harness import Gap, Harness, Tamper

__all__ = [
    "EngineConformance",
    "Gap",
    "Harness",
    "ProcessConformance",
    "SchemaConformance",
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

    answering: ClassVar = frozenset({"runs", "attempts"})


class EngineConformance(
    Starting, Acquiring, Waking, Recording, Gates, Ending, Resolving, Histories, Crowds, Faces, EngineLockstep
):
    """The commands of the engine, and that both faces of a database respect each other."""

    answering: ClassVar = frozenset({"engine"})


class ProcessConformance(Processes):
    """Two openings of one database."""


class SchemaConformance(Damage, Guarded, Facts):
    """Belay's own tables in SQL; the harness needs a ``tamper``."""
