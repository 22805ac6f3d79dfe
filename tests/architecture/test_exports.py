"""The public names, written down: a new one is a decision, a missing one a break."""

import importlib
import inspect

import pytest

PUBLIC = {
    "belay_core": [
        "AlreadyDecided",
        "AlreadyRequested",
        "ApprovalRecord",
        "Approved",
        "BelayError",
        "CancelRequested",
        "Client",
        "Completed",
        "Context",
        "DatabaseUnreachable",
        "Decided",
        "DefinitionError",
        "DriverNotFound",
        "Ended",
        "Explanation",
        "Fail",
        "GiveUp",
        "Happened",
        "InvalidInput",
        "InvalidTransitionError",
        "Lapsed",
        "NoSuchApproval",
        "NotNeeded",
        "Rejected",
        "Resolved",
        "ResultTimeout",
        "Retried",
        "Retry",
        "RunCancelled",
        "RunFailed",
        "RunHandle",
        "RunHistory",
        "RunNotFoundError",
        "RunStatus",
        "RunSummary",
        "SchemaMismatch",
        "Step",
        "StepContext",
        "StepFailed",
        "StepRecord",
        "StepState",
        "Stores",
        "StoresUnusable",
        "SubjectChanged",
        "Terminal",
        "TooLate",
        "TryAgain",
        "Unfinished",
        "ValueRefused",
        "Waiting",
        "Worker",
        "Workflow",
        "current_step",
        "find_migrations",
        "gate",
        "open_stores",
        "step",
        "workflow",
    ],
}


def test_the_public_names_are_the_written_ones():
    for module, names in PUBLIC.items():
        assert sorted(importlib.import_module(module).__all__) == names


@pytest.mark.parametrize("name", PUBLIC["belay_core"])
def test_every_public_name_is_there_and_says_what_it_is(name):
    found = getattr(importlib.import_module("belay_core"), name)
    assert inspect.getdoc(found)


def test_every_public_method_says_what_it_does():
    module = importlib.import_module("belay_core")
    silent = [
        f"{name}.{method}"
        for name in PUBLIC["belay_core"]
        if inspect.isclass(kind := getattr(module, name))
        for method, found in vars(kind).items()
        if not method.startswith("_") and callable(found) and not inspect.getdoc(found)
    ]
    assert silent == []


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Engine'"):
        importlib.import_module("belay_core").Engine  # noqa: B018
