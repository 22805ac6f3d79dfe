"""Every public name stands on one page of the reference, and says what it is, in which unit, and what it raises."""

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[2]
PACKAGES = ("belay_core", "belay_drivers", "belay_integrations", "belay_testing")
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
PROSE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLE = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)

LISTED = [
    "belay_core",
    "belay_core.client",
    "belay_core.records.commands",
    "belay_core.stores",
    "belay_core.telemetry",
    "belay_drivers.postgres",
    "belay_drivers.sqlite",
    "belay_integrations.django",
    "belay_testing.conformance",
    "belay_testing.postgres_server",
]
"""Modules whose public names are those of a list."""

WHOLE = [
    "belay_core.jitter",
    "belay_core.errors",
    "belay_core.ids",
    "belay_core.limits",
    "belay_core.clock",
    *(
        f"belay_core.stores.{name}"
        for name in ("approvals", "attempts", "changes", "journal", "retention", "run_contract", "runs", "waiting")
    ),
    *(
        f"belay_core.records.{name}"
        for name in ("attempt", "changes", "owner", "run", "step_record", "waiting", "workflow_run")
    ),
    "belay_integrations.fastapi",
    "belay_core.workflows.gate_answers",
    "belay_core.workflows.middleware",
    *(
        f"belay_testing.{name}"
        for name in ("answers", "cases", "clock", "drive", "faults", "handles", "harness", "ids", "spans")
    ),
]
"""Modules all of whose names are public but those with an underscore."""

UNITS = re.compile(r"(?i)\b(?:milliseconds?|seconds?|ms|chance|number)\b")


@cache
def collection() -> griffe.ModulesCollection:
    loader = griffe.GriffeLoader(search_paths=[ROOT])
    for package in PACKAGES:
        loader.load(package)
    return loader.modules_collection


def found(path: str) -> Any:
    """What stands at a path, wherever it is defined."""
    member: Any = collection()[path]
    return member.final_target if member.is_alias else member


def is_ours(member: Any) -> bool:
    return not member.is_alias or member.target_path.split(".")[0] in PACKAGES


def public(module: str) -> Iterator[str]:
    """The paths of the public names of a module, each where it is defined."""
    whole = module in WHOLE
    exports = collection()[module].exports
    for name, member in collection()[module].members.items():
        # A name of one letter is a type variable.
        if name.startswith("_") or len(name) == 1 or not is_ours(member):
            continue
        if (whole and not member.is_alias) or (not whole and (exports is None or name in exports)):
            target = member.final_target if member.is_alias else member
            # A list that is computed is told from what the module imports for it.
            if whole or exports is not None or not target.is_module:
                yield target.path


def promised() -> set[str]:
    return {path for module in (*LISTED, *WHOLE) for path in public(module)} | set(public_fixtures())


def public_fixtures() -> Iterator[str]:
    return (each.path for name, each in collection()["belay_testing.plugin"].members.items() if name[:6] == "belay_")


def written() -> Iterator[tuple[str, str]]:
    """What the pages show: the page and the path, names of a whole module one by one."""
    for page in PAGES:
        for path in DIRECTIVE.findall(page.read_text()):
            shown = found(path)
            if path in WHOLE:
                yield from ((page.name, each) for each in public(path))
            else:
                yield page.name, shown.path


def test_every_public_name_stands_on_one_page():
    times = Counter(path for _, path in written())
    assert sorted(promised() - set(times)) == []
    assert {path: count for path, count in times.items() if count > 1} == {}


def imported() -> Iterator[tuple[str, str]]:
    """What the samples of all pages import from belay: the page, and the path of what it is."""
    for page in PROSE:
        for sample in SAMPLE.findall(page.read_text()):
            for node in ast.walk(ast.parse(textwrap.dedent(sample))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
                    yield from ((page.name, found(f"{node.module}.{name.name}").path) for name in node.names)


def test_a_sample_uses_public_names_alone():
    every = set(imported())
    assert len(every) > 50, "no sample was found"
    known = {path for _, path in written()}
    assert [f"{page}: {path}" for page, path in sorted(every) if path not in known] == []


def shown() -> list[Any]:
    return [found(path) for path in sorted({path for _, path in written()})]


def members(kind: Any) -> Iterator[Any]:
    """The public methods, properties and fields of a class, its bases' too; what pytest finds is named by itself."""
    for name, member in kind.all_members.items():
        if name.startswith(("_", "test_", "pytestmark")):
            continue
        yield member.final_target if member.is_alias else member


def text(member: Any) -> str:
    return member.docstring.value if member.docstring else ""


def types(annotation: Any) -> Iterator[Any]:
    """Belay's own types in an annotation."""
    if isinstance(annotation, griffe.Expr):
        for each in annotation.iterate(flat=True):
            if isinstance(each, griffe.ExprName) and each.canonical_path.split(".")[0] in PACKAGES:
                yield found(each.canonical_path)


def names(docstring: str, name: str) -> bool:
    """Whether a docstring speaks of this name, as code."""
    return any(re.search(rf"\b{re.escape(name)}\b", code) for code in re.findall(r"`([^`]+)`", docstring)) or (
        re.search(rf"^\s*{re.escape(name)}: ", docstring, re.MULTILINE) is not None
    )


def is_told(kind: Any, member: Any) -> bool:
    """A member says what it is, or its class does, or the member it overrides.

    A field may leave it to its type, where that is belay's own.
    """
    if text(member) or any(text(base.members[member.name]) for base in kind.mro() if member.name in base.members):
        return True
    if not member.is_attribute:
        return False
    speaking = (kind, member.parent, *kind.mro())
    return any(names(text(each), member.name) for each in speaking) or any(
        text(each) for each in types(member.annotation)
    )


def test_every_public_name_says_what_it_is():
    silent = [each.path for each in shown() if not text(each)]
    silent += [
        f"{kind.path}: {member.path}"
        for kind in shown()
        if kind.is_class
        for member in members(kind)
        if not is_told(kind, member)
    ]
    assert silent == []


def functions() -> Iterator[tuple[Any, str]]:
    """Every public function and method, and the docstrings that speak of it."""
    for each in shown():
        if each.is_function:
            yield each, text(each)
        elif each.is_class:
            for member in each.all_members.values():
                target = member.final_target if member.is_alias and is_ours(member) else member
                if member.is_alias or not target.is_function:
                    continue
                if target.name == "__init__" and "dataclass" in target.parent.labels:
                    continue  # made, not written
                if target.name in {"__init__", "__post_init__"}:
                    yield target, text(each) + text(target)
                elif not target.name.startswith(("_", "test_")):
                    yield target, text(target)


def raised(function: Any) -> set[str]:
    """The exceptions that a function's own body raises by name."""
    lines = function.filepath.read_text().splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function.name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first <= function.lineno <= node.lineno:
                return {name for each in ast.walk(node) if isinstance(each, ast.Raise) for name in _classes(each.exc)}
    raise LookupError(function.path)


def _classes(raising: ast.expr | None) -> Iterator[str]:
    called = raising.func if isinstance(raising, ast.Call) else raising
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if name[:1].isupper():
        yield name


def test_every_public_function_names_what_it_raises():
    every = list(functions())
    assert len(every) > 150, "the functions were not found"
    unsaid = [
        f"{function.path}: {name}" for function, said in every for name in raised(function) if not names(said, name)
    ]
    assert sorted(unsaid) == []


def needs_unit(path: str, annotation: object) -> bool:
    """A moment has its unit in its name; a number of another type has to say it."""
    moment = "Millis" in str(annotation) and not path.strip(")").endswith("_ms")
    return moment or re.search(r"\bfloat\b", str(annotation)) is not None


def test_a_moment_is_named_by_its_unit_and_another_number_of_time_says_it():
    quantities = [
        (member.path, member.annotation, text(member) + text(kind))
        for kind in shown()
        if kind.is_class
        for member in members(kind)
        if member.is_attribute
    ]
    for function, said in functions():
        quantities += [(f"{function.path}({each.name})", each.annotation, said) for each in function.parameters]
        quantities.append((function.path, function.returns, said))
    unsaid = [path for path, annotation, said in quantities if needs_unit(path, annotation) and not UNITS.search(said)]
    assert sorted(unsaid) == []


def test_every_limit_says_its_unit():
    limits = [found(path) for path in public("belay_core.limits")]
    assert len(limits) > 10
    units = r"(?i)\b(milliseconds|seconds|bytes|code units|containers|values|integer|owners)\b"
    assert [each.path for each in limits if not re.search(units, text(each))] == []
