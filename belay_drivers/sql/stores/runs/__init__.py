"""Runs in SQL: the contract's part (specs, run store 6) and the engine's."""

from belay_core.errors import RunStoreError
from belay_core.stores.run_contract import RunContract
from belay_core.stores.runs import RunStore
from belay_drivers.sql.stores.base import Parts
from belay_drivers.sql.stores.runs.acquire import AcquireRuns
from belay_drivers.sql.stores.runs.cancel import CancelRuns
from belay_drivers.sql.stores.runs.claim_and_own import ClaimRuns
from belay_drivers.sql.stores.runs.create import CreateRuns
from belay_drivers.sql.stores.runs.lineages import ReadLineages
from belay_drivers.sql.stores.runs.owned import OwnedTransitions
from belay_drivers.sql.stores.runs.read import ReadRuns
from belay_drivers.sql.stores.runs.release import ReleaseRuns
from belay_drivers.sql.stores.runs.renew import RenewLeases
from belay_drivers.sql.stores.runs.request_cancel import RequestCancel
from belay_drivers.sql.stores.runs.resolve import ResolveReviews
from belay_drivers.sql.stores.runs.retry import RetryRuns
from belay_drivers.sql.stores.runs.start import StartRuns
from belay_drivers.sql.stores.runs.two_phase_claim import ReserveRuns
from belay_drivers.sql.stores.runs.workflow_reads import ReadWorkflowRuns

__all__ = ["SqlRunContract", "SqlRunStore"]


class SqlRunContract(
    CreateRuns, ReadRuns, ReadLineages, RequestCancel, ClaimRuns, ReserveRuns, OwnedTransitions, RunContract
):
    """The contract's part: runs and their fenced ownership, over one database."""


class SqlRunStore(
    SqlRunContract,
    StartRuns,
    AcquireRuns,
    RenewLeases,
    ReleaseRuns,
    CancelRuns,
    ResolveReviews,
    RetryRuns,
    ReadWorkflowRuns,
    RunStore,
):
    """Both parts, over one database."""

    error = RunStoreError

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.database, parts.clock)
        StartRuns.__init__(self, parts)
