"""Help comes at once and loads nothing; what is not installed is named."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest

from belay_core.cli import group
from belay_core.cli.group import COMMANDS, GROUP, belay
from belay_core.cli.invocation import run
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
OURS = sorted(COMMANDS)


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
    assert re.search(r"^  demo +Watch a run survive its worker\.$", out, re.MULTILINE)
    assert min(seconds for _, seconds, _, _ in runs) < 0.5


@pytest.mark.parametrize("name", [*OURS, "demo"])
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


@click.command(short_help="Greet.")
def greet() -> int:
    click.echo("hello")
    return 3


NO_COMMAND = "text"


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The entry points of some other packages."""
    values = {
        "greet": f"{__name__}:greet",
        "worker": f"{__name__}:greet",
        "broken": "no_such_package.command:greet",
        "wrong": f"{__name__}:NO_COMMAND",
    }
    points = {name: EntryPoint(name, value, GROUP) for name, value in sorted(values.items()) if name not in COMMANDS}
    everything = [EntryPoint(name, value, GROUP) for name, value in values.items()]
    monkeypatch.setattr("belay_core.cli.group.entry_points", lambda group: everything if group == GROUP else [])
    group.plugins.cache_clear()
    assert group.plugins() == points
    yield
    group.plugins.cache_clear()


def test_commands_of_other_packages_are_found_and_take_no_name_of_belay(plugins: None, capsys):
    assert (run(["--help"]), run(["greet"]), run(["worker", "--help"])) == (0, 3, 0)
    out = capsys.readouterr().out
    assert re.search(r"^  greet +Greet\.$", out, re.MULTILINE)
    assert re.search(r"^  worker +Execute the runs", out, re.MULTILINE)
    assert "\nhello\nUsage: belay worker " in out


def test_a_command_that_cannot_be_loaded_hides_no_other(plugins: None, capsys):
    assert (run(["--help"]), run(["wrong"])) == (0, 1)
    out, err = capsys.readouterr()
    assert re.search(r"^  broken +\(cannot be loaded: ModuleNotFoundError\)$", out, re.MULTILINE)
    assert re.search(r"^  wrong +\(cannot be loaded: TypeError\)$", out, re.MULTILINE)
    assert "NO_COMMAND is no click command" in err


@pytest.mark.parametrize("package", ["defusedxml", "rich"])
def test_without_the_extra_of_the_demo_its_command_says_what_to_install(package: str):
    done = without(package, "demo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"belay: {package} is not installed; pip install 'belay-core[demo]'\n"


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
