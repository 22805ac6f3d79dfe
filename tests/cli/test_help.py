"""Help comes at once and loads nothing; what is not installed is named."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from belay_core.cli.group import COMMANDS, belay
from tests.cli.commanding import Cli, shell

ROOT = Path(__file__).parents[2]
HEAVY = ("pydantic", "sqlalchemy", "rich", "opentelemetry", "asyncpg", "aiosqlite", "belay_drivers")
PROGRAM = """
import json, sys, time
start = time.perf_counter()
from belay_core.cli import main
try:
    sys.argv[1:] = json.loads(sys.argv[1])
    main()
except SystemExit as end:
    spent = time.perf_counter() - start
    print(json.dumps([end.code, spent, sorted(sys.modules)]), file=sys.stderr)
"""
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
del sys.argv[1]
from belay_core.cli import main
main()
"""
OURS = sorted(name for name in COMMANDS if name != "demo")


def loaded(*arguments: str) -> tuple[int, float, set[str], str]:
    """Exit code, seconds, the packages loaded, and the output of a command in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(arguments)], check=True, capture_output=True, text=True, timeout=30
    )
    code, seconds, modules = json.loads(done.stderr.splitlines()[-1])
    return code, seconds, {name for name in modules if name.split(".")[0] in HEAVY}, done.stdout


def without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in an interpreter that has no such package."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *arguments], check=False, capture_output=True, text=True, timeout=30
    )


def test_help_lists_every_command_at_once_and_loads_nothing_for_it():
    runs = [loaded("--help") for _ in range(5)]
    code, _, heavy, out = runs[0]
    assert (code, heavy) == (0, set())
    assert all(f"  {name} " in out for name in OURS)
    assert min(seconds for _, seconds, _, _ in runs) < 0.5


@pytest.mark.parametrize("name", OURS)
def test_the_help_of_a_command_loads_nothing_either(name: str):
    code, _, heavy, out = loaded(name, "--help")
    assert (code, heavy) == (0, set())
    assert out.startswith(f"Usage: belay {name} ")


@pytest.mark.parametrize("name", OURS)
def test_the_list_of_commands_says_what_their_own_help_says(name: str):
    command = belay.get_command(click.Context(belay), name)
    assert command is not None
    assert command.name == name
    first = (command.help or "").split("\n\n")[0].replace("\n", " ")
    assert first.startswith(COMMANDS[name][1].removesuffix("."))


@pytest.mark.parametrize("name", OURS)
def test_every_command_writes_json(name: str):
    command = belay.get_command(click.Context(belay), name)
    assert command is not None
    assert "--json" in [option for parameter in command.params for option in parameter.opts]


def test_the_demo_is_listed_once_there_is_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("belay_core.cli.group.find_spec", lambda name: None if "demo" in name else object())
    assert "demo" not in belay.list_commands(click.Context(belay))
    monkeypatch.setattr("belay_core.cli.group.find_spec", lambda name: object())
    assert belay.list_commands(click.Context(belay))[0] == "demo"


def test_without_arguments_the_help_is_shown_and_nothing_is_done():
    ended = shell()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: belay [OPTIONS]")


def test_the_version_is_that_of_the_distribution():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ended = shell("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"belay {version}\n", "")


def test_without_click_the_command_says_what_to_install():
    done = without("click", "--help")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "belay: click: is not installed; pip install 'belay-core[cli]'\n"


@pytest.mark.parametrize(
    ("package", "url", "extra"),
    [
        ("sqlalchemy", "sqlite:///{}", "sqlite"),
        ("aiosqlite", "sqlite:///{}", "sqlite"),
        ("sqlalchemy", "postgresql://eve:hunter2@127.0.0.1:1/belay", "postgres"),
        ("asyncpg", "postgresql://eve:hunter2@127.0.0.1:1/belay", "postgres"),
    ],
)
def test_without_a_driver_the_command_says_what_to_install(package: str, url: str, extra: str, tmp_path: Path):
    file = tmp_path / "belay.db"
    file.touch()
    done = without(package, "runs", "--database", url.format(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"belay: {package} is not installed; pip install 'belay-core[{extra}]'\n"


def test_without_rich_a_table_at_a_terminal_is_plain_text(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    cli.start("ping", run_id="r1")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert cli("runs").out.splitlines()[0] == "STATE    AGE  WORKFLOW  RUN"
