"""The house rules that no linter knows: sizes, addresses, paths, unfinished work."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("belay_core", "belay_drivers", "belay_integrations", "belay_testing")
LINES_A_MODULE = 500
LINES_A_FUNCTION = 40
READ = {".cfg", ".in", ".ini", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml"}
ALSO_READ = {"Makefile", "run", ".gitignore", ".editorconfig"}
# Put together from pieces, so that this file may be read as well.
REGISTRIES = ("pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com")
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:" + "work|root|farm" + r")/\w")
UNFINISHED = re.compile(r"\b(?:" + "TO" + "DO|FIX" + "ME|HA" + "CK|NotImpl" + r"ementedError)\b")
DEVELOPMENT = re.compile(r"(?i)\b(?:as an " + "ai|ai " + "assistant|agent " + "session|co-authored" + r"-by)\b")


def modules() -> Iterator[Path]:
    for package in (*PACKAGES, "examples"):
        yield from sorted((ROOT / package).rglob("*.py"))


def texts() -> Iterator[Path]:
    """All files that people write and read."""
    for path in sorted(ROOT.iterdir()):
        if path.name in {".cache", ".git", "build", "dist"} or path.name.startswith(".venv"):
            continue
        if path.name.endswith("_cache"):
            continue
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and (file.suffix in READ or file.name in ALSO_READ):
                yield file


def places(pattern: re.Pattern[str]) -> list[str]:
    """Where the pattern occurs, as ``file:line``."""
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]


def test_a_module_has_at_most_500_lines():
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules()}
    assert sizes, "no module found"
    assert {path: size for path, size in sizes.items() if size > LINES_A_MODULE} == {}


def test_a_function_has_at_most_40_lines():
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LINES_A_FUNCTION
    ]
    assert too_long == []


@pytest.mark.parametrize("lock", ["dev.txt", "peers.txt", "viewer.txt"])
def test_the_lock_is_hashed_and_names_no_address(lock: str):
    lines = (ROOT / "requirements" / lock).read_text().splitlines()
    assert [line for line in lines if "://" in line or "index-url" in line or " /" in line] == []
    pinned = [line for line in lines if re.match(r"[a-z0-9]", line)]
    assert [line for line in pinned if "==" not in line or not line.endswith("\\")] == []
    assert sum("--hash=sha256:" in line for line in lines) >= len(pinned) > 0


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(re.compile("|".join(map(re.escape, REGISTRIES))), id="registries"),
        pytest.param(MACHINE_PATHS, id="machine-paths"),
        pytest.param(UNFINISHED, id="unfinished"),
        pytest.param(DEVELOPMENT, id="development"),
    ],
)
def test_no_file_speaks_of(pattern: re.Pattern[str]):
    assert places(pattern) == []


def test_every_ignored_rule_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text()
    rules = re.findall(r'^\s+"([A-Z]+\d*)",(.*)$', text, flags=re.MULTILINE)
    assert rules, "no rule found"
    assert [rule for rule, rest in rules if not re.match(r"\s*# \w", rest)] == []


def test_the_distribution_is_what_was_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "belay-core"
    assert "pytest11" not in project["entry-points"], "the plugin is opted into, never loaded by itself"
    assert {path.parent.name for path in ROOT.glob("belay_*/py.typed")} == set(PACKAGES)
