"""What ``make downstream`` stands on: what it installs, what it finds wrong with a wheel, and the page's excerpts."""

import re
import shutil
import sys
import textwrap
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.downstream.building import ROOT, build, shortcomings, unpack
from tests.downstream.check import NEEDED
from tests.downstream.foreign import Foreign, pinned

LOCK = """\
# made by hand
app==1.0 \\
    --hash=sha256:1111
    # via belay-core (pyproject.toml)
base==2.0 ; python_version < '3.99' \\
    --hash=sha256:2222 \\
    --hash=sha256:3333
    # via
    #   app[fast]
    #   other
deep==3.0 \\
    --hash=sha256:4444
    # via base
other==4.0 \\
    --hash=sha256:5555
    # via -r requirements/dev.in
tool==5.0 \\
    --hash=sha256:6666
    # via -r requirements/dev.in
"""
STRAYS = """
def test_it():
    import sys
    sys.path.insert(0, "../tree")
    import stray
"""
EXCERPT = re.compile(r"^<!-- from (?P<file>\S+) -->\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "how-to" / "write-a-driver.md").read_text()


def test_what_is_installed_is_what_is_needed_with_its_hashes():
    assert re.findall(r"^\w+", pinned(LOCK, "belay-core (pyproject.toml)"), re.MULTILINE) == ["app", "base", "deep"]
    assert re.findall(r"sha256:(\d)", pinned(LOCK, "tool", "other")) == ["2", "3", "4", "5", "6"]


def test_the_projects_lock_has_every_requirement_of_every_extra():
    installed = re.findall(
        r"^[a-z0-9-]+(?===)", pinned((ROOT / "requirements/dev.txt").read_text(), *NEEDED), re.MULTILINE
    )
    named = {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in requires("belay-core") or []}
    assert named - {"belay-core"} <= {*installed}
    assert {"mypy", "pydantic-core", "greenlet"} <= {*installed}
    assert not {"mkdocs", "ruff", "pytest-xdist", "hypothesis"} & {*installed}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, and the sdist's project it was built from."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "built").mkdir()
    project = unpack(build(ROOT, folder / "built", "sdist"), folder / "sources")
    return build(project, folder / "built", "wheel"), project


def test_the_wheel_is_what_it_should_be(published: tuple[Path, Path]):
    assert shortcomings(*published) == []


@pytest.mark.parametrize(
    ("lost", "added", "reported"),
    [
        ("belay_testing/py.typed", None, ["not in the wheel: belay_testing/py.typed", "no types: belay_testing"]),
        (
            "belay_drivers/sqlite/migrations/.*",
            None,
            ["not in the wheel: belay_drivers/sqlite/migrations/", "no migrations: sqlite"],
        ),
        (None, "tests/test_secret.py", ["does not belong in the wheel: tests/test_secret.py"]),
        (".*/licenses/LICENSE", None, ["no belay_core-"]),
        (
            ".*/METADATA",
            "belay_core-0.1.0.dist-info/METADATA",
            ["extras: [] instead", "requirements: [] instead"],
        ),
    ],
)
def test_a_wheel_that_is_not_is_found_out(
    published: tuple[Path, Path], tmp_path: Path, lost: str | None, added: str | None, reported: list[str]
):
    wheel, project = published
    other = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as given, zipfile.ZipFile(other, "w") as made:
        for name in given.namelist():
            if lost is None or not re.fullmatch(lost, name):
                made.writestr(name, given.read(name))
        if added is not None:
            made.writestr(added, "Metadata-Version: 2.4\nName: belay-core\n")
    found = shortcomings(other, project)
    for line in reported:
        assert any(each.startswith(line) for each in found), found


def test_a_project_that_cannot_be_built_is_reported(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(AssertionError, match="cannot be built"):
        build(tmp_path, tmp_path, "wheel")


def test_a_module_of_the_working_tree_is_found_out(tmp_path: Path):
    project, forbidden = tmp_path / "project", tmp_path / "tree"
    project.mkdir()
    forbidden.mkdir()
    (forbidden / "stray.py").write_text("")
    (project / "test_it.py").write_text(STRAYS)
    foreign = Foreign(tmp_path, Path(sys.executable).parent, forbidden)
    with pytest.raises(AssertionError, match="imported from the working tree"):
        foreign.test(project)
    shutil.rmtree(forbidden)
    with pytest.raises(AssertionError, match="No module named 'stray'"):
        foreign.test(project)


def test_excerpts_of_the_page_are_what_the_driver_says():
    excerpts = list(EXCERPT.finditer(PAGE))
    assert len(excerpts) == PAGE.count("<!-- from ") >= 5
    for excerpt in excerpts:
        text = (ROOT / excerpt["file"]).read_text()
        assert excerpt["text"] in text or textwrap.dedent(excerpt["text"]) in text, excerpt["file"]


def test_the_driver_stands_on_the_core_alone():
    modules = list((ROOT / "downstream/belay-jsonl/belay_jsonl").glob("*.py"))
    assert modules
    for module in modules:
        imported = re.findall(r"^\s*(?:from|import) (\w+)", module.read_text(), re.MULTILINE)
        assert not {*imported} & {"belay_drivers", "belay_testing", "tests", "sqlalchemy"}, module.name
