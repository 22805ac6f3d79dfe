"""What the adapters repeat of the client and the worker is whole: each has a twin, or is named here."""

import inspect
from typing import Any

import pytest

from belay_core import Client, RunHandle, Worker
from belay_integrations.blocking import BlockingClient, BlockingRunHandle
from belay_integrations.fastapi import Belay, WorkerSettings


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def options(call: Any) -> set[str]:
    every = inspect.signature(call).parameters.values()
    return {each.name for each in every if each.kind is inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("kind", "twin", "without"),
    [
        # A transaction of SQLAlchemy's async connection has no blocking twin.
        (Client, BlockingClient, {"within"}),
        (RunHandle, BlockingRunHandle, set()),
    ],
)
def test_every_method_has_its_blocking_twin(kind: type, twin: type, without: set[str]):
    assert public(kind) - public(twin) == without, f"add to {twin.__name__} in belay_integrations/blocking.py"


def test_every_option_of_the_client_can_be_given():
    assert options(Client) - options(BlockingClient) == set()
    assert options(Client) - options(Belay) == set()


def test_every_setting_of_the_worker_can_be_given():
    for_tests = {"background", "jitter"}
    assert options(Worker) - options(Belay) - set(WorkerSettings.__annotations__) == for_tests
