"""What an import loads, and how long it takes, seen in a fresh interpreter."""

import json
import subprocess
import sys

import pytest

FOREIGN = {
    "aiosqlite",
    "anthropic",
    "asyncpg",
    "click",
    "httpx",
    "opentelemetry",
    "pydantic",
    "pytest",
    "rich",
    "sqlalchemy",
    "starlette",
}
PROGRAM = """
import json, sys, time
before = set(sys.modules)
start = time.perf_counter()
import {module}
spent = time.perf_counter() - start
print(json.dumps([spent, sorted(set(sys.modules) - before)]))
"""


def load(module: str) -> tuple[float, set[str]]:
    """Seconds the import took, and the modules it brought."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)], check=True, capture_output=True, text=True
    )
    seconds, modules = json.loads(done.stdout)
    return seconds, set(modules)


def below(modules: set[str], *parents: str) -> set[str]:
    """Those of the modules that are one of the parents, or lie below one."""
    return {name for name in modules for parent in parents if name == parent or name.startswith(f"{parent}.")}


def test_the_core_loads_nothing_from_outside_and_is_quick():
    runs = [load("belay_core") for _ in range(5)]
    assert below(runs[0][1], *FOREIGN, "belay_drivers", "belay_testing") == set()
    assert min(seconds for seconds, _ in runs) < 0.1


@pytest.mark.parametrize(
    ("driver", "others"),
    [
        ("belay_drivers.sqlite", ("belay_drivers.postgres", "asyncpg")),
        ("belay_drivers.postgres", ("belay_drivers.sqlite", "aiosqlite")),
    ],
)
def test_a_driver_loads_no_engine_and_no_other_driver(driver: str, others: tuple[str, ...]):
    wings = ("client", "engine", "ownership", "telemetry", "worker", "workflows", "cli")
    _, modules = load(driver)
    assert below(modules, *(f"belay_core.{wing}" for wing in wings), *others) == set()
    assert below(modules, "opentelemetry", "pydantic", "pytest", "belay_testing") == set()


def test_the_pytest_plugin_loads_pytest_and_nothing_else():
    _, modules = load("belay_testing.plugin")
    assert below(modules, *(FOREIGN - {"pytest"}), "belay_core", "belay_drivers") == set()
