"""Durable workflows on the database you already have; every public name is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from belay_core.client import Client as Client
    from belay_core.client import Completed as Completed
    from belay_core.client import Ended as Ended
    from belay_core.client import Explanation as Explanation
    from belay_core.client import RunHandle as RunHandle
    from belay_core.client import Unfinished as Unfinished
    from belay_core.client import Waiting as Waiting
    from belay_core.errors import BelayError as BelayError
    from belay_core.errors import DatabaseUnreachable as DatabaseUnreachable
    from belay_core.errors import DefinitionError as DefinitionError
    from belay_core.errors import DriverNotFound as DriverNotFound
    from belay_core.errors import Fail as Fail
    from belay_core.errors import InvalidInput as InvalidInput
    from belay_core.errors import InvalidTransitionError as InvalidTransitionError
    from belay_core.errors import ResultTimeout as ResultTimeout
    from belay_core.errors import RunCancelled as RunCancelled
    from belay_core.errors import RunFailed as RunFailed
    from belay_core.errors import RunNotFoundError as RunNotFoundError
    from belay_core.errors import SchemaMismatch as SchemaMismatch
    from belay_core.errors import StepFailed as StepFailed
    from belay_core.errors import StoresUnusable as StoresUnusable
    from belay_core.errors import TryAgain as TryAgain
    from belay_core.errors import ValueRefused as ValueRefused
    from belay_core.records.commands import GiveUp as GiveUp
    from belay_core.records.commands import Happened as Happened
    from belay_core.records.commands import Retry as Retry
    from belay_core.records.commands import RunHistory as RunHistory
    from belay_core.records.run import RunStatus as RunStatus
    from belay_core.records.step_record import StepRecord as StepRecord
    from belay_core.records.step_record import StepState as StepState
    from belay_core.records.workflow_run import ApprovalRecord as ApprovalRecord
    from belay_core.records.workflow_run import RunSummary as RunSummary
    from belay_core.stores import Stores as Stores
    from belay_core.stores import find_migrations as find_migrations
    from belay_core.stores import open_stores as open_stores
    from belay_core.stores.approvals import AlreadyDecided as AlreadyDecided
    from belay_core.stores.approvals import Decided as Decided
    from belay_core.stores.approvals import NoSuchApproval as NoSuchApproval
    from belay_core.stores.approvals import SubjectChanged as SubjectChanged
    from belay_core.stores.approvals import TooLate as TooLate
    from belay_core.stores.run_contract import AlreadyRequested as AlreadyRequested
    from belay_core.stores.run_contract import CancelRequested as CancelRequested
    from belay_core.stores.run_contract import Terminal as Terminal
    from belay_core.stores.runs import Resolved as Resolved
    from belay_core.stores.runs import Retried as Retried
    from belay_core.worker import Worker as Worker
    from belay_core.workflows.class_form import StepContext as StepContext
    from belay_core.workflows.class_form import Workflow as Workflow
    from belay_core.workflows.context import Context as Context
    from belay_core.workflows.current_step import current_step as current_step
    from belay_core.workflows.function_form import workflow as workflow
    from belay_core.workflows.gate import gate as gate
    from belay_core.workflows.gate_answers import Approved as Approved
    from belay_core.workflows.gate_answers import Lapsed as Lapsed
    from belay_core.workflows.gate_answers import NotNeeded as NotNeeded
    from belay_core.workflows.gate_answers import Rejected as Rejected
    from belay_core.workflows.step import Step as Step
    from belay_core.workflows.step import step as step

_HOMES = {
    "belay_core.client": (
        "Client",
        "Completed",
        "Ended",
        "Explanation",
        "RunHandle",
        "Unfinished",
        "Waiting",
    ),
    "belay_core.records.commands": ("GiveUp", "Happened", "Retry", "RunHistory"),
    "belay_core.errors": (
        "BelayError",
        "DatabaseUnreachable",
        "DefinitionError",
        "DriverNotFound",
        "Fail",
        "InvalidInput",
        "InvalidTransitionError",
        "ResultTimeout",
        "RunCancelled",
        "RunFailed",
        "RunNotFoundError",
        "SchemaMismatch",
        "StepFailed",
        "StoresUnusable",
        "TryAgain",
        "ValueRefused",
    ),
    "belay_core.records.run": ("RunStatus",),
    "belay_core.records.step_record": ("StepRecord", "StepState"),
    "belay_core.records.workflow_run": ("ApprovalRecord", "RunSummary"),
    "belay_core.stores": ("Stores", "find_migrations", "open_stores"),
    "belay_core.stores.approvals": ("AlreadyDecided", "Decided", "NoSuchApproval", "SubjectChanged", "TooLate"),
    "belay_core.stores.run_contract": ("AlreadyRequested", "CancelRequested", "Terminal"),
    "belay_core.stores.runs": ("Resolved", "Retried"),
    "belay_core.worker": ("Worker",),
    "belay_core.workflows.gate_answers": ("Approved", "Lapsed", "NotNeeded", "Rejected"),
    "belay_core.workflows.context": ("Context",),
    "belay_core.workflows.current_step": ("current_step",),
    "belay_core.workflows.class_form": ("StepContext", "Workflow"),
    "belay_core.workflows.gate": ("gate",),
    "belay_core.workflows.function_form": ("workflow",),
    "belay_core.workflows.step": ("Step", "step"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]  (the table is the list)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
