"""The report of the conformance suite: a data sheet for each driver; its gaps are strict expected failures."""

import json
import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import pytest

from belay_testing.cases import MARK

if TYPE_CHECKING:
    from belay_testing.harness import Gap

SUITE_REPORT: Final = "belay-conformance"
"""The name under which the report is registered with pytest."""
SEED: Final = "lockstep_seed"
"""The parameter that numbers the lockstep histories."""
_REPORT: Final = "belay_conformance"


class XdistNode(Protocol):
    """The part of an xdist worker, as its controller sees it, that is used here."""

    workeroutput: dict[str, Any]


class Suite(Protocol):
    """The attributes of a test class that inherits chapters."""

    driver: str
    gaps: "tuple[Gap, ...]"
    answering: frozenset[str]
    most_histories: int | None


@dataclass
class DriverReport:
    """The data sheet of one driver; everything in it can be written as JSON."""

    driver: str
    gaps: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    found: list[str] = field(default_factory=list[str])
    """The gaps that name an existing test."""
    expected: list[str] = field(default_factory=list[str])
    """The names of all tests of its suite."""
    ran: list[str] = field(default_factory=list[str])
    answers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The outcomes that its stores can return."""
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    seeds: list[int] = field(default_factory=list[int])
    in_disguise: bool = False
    """Whether it runs fewer lockstep histories than were asked for."""

    def merge(self, other: "DriverReport") -> None:
        """Add the results of another process."""
        self.ran = sorted({*self.ran, *other.ran})
        self.found = sorted({*self.found, *other.found})
        self.seen = sorted({*map(_pair, self.seen), *map(_pair, other.seen)})
        self.seeds = sorted({*self.seeds, *other.seeds})

    @property
    def complete(self) -> bool:
        """Whether every test of the suite was run."""
        return set(self.expected) <= set(self.ran)

    @property
    def unseen(self) -> list[tuple[str, str]]:
        """Outcomes that this driver can return and never did."""
        return sorted({*map(_pair, self.answers)} - {*map(_pair, self.seen)})

    @property
    def shortcomings(self) -> list[str]:
        """Reasons why a complete run of the suite fails."""
        if not self.complete:
            return []
        never = [f"never answered: {operation} {kind}" for operation, kind in self.unseen]
        return never + [f"gap names no test: {test}" for test, _ in self.gaps if test not in self.found]


def _pair(answer: Iterable[str]) -> tuple[str, str]:
    operation, kind = answer
    return operation, kind


class SuiteReport:
    """The data sheets of all drivers of a run; a worker of xdist sends its own to the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._sheets: dict[str, DriverReport] = {}
        self._proven: set[int] = set()
        self._tests = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Collect the suites before anything is deselected, and mark the tests of their gaps as expected failures."""
        for item in items:
            suite = _suite_of(item)
            if suite is None:
                continue
            item.extra_keyword_matches.add(_chapter_of(item))
            sheet = self._report_of(suite)
            gap = next((gap for gap in suite.gaps if gap.test in {item.name, _plain(item.name)}), None)
            if gap is not None:
                sheet.merge(DriverReport(sheet.driver, found=[gap.test]))
                item.add_marker(pytest.mark.xfail(reason=gap.because, strict=True))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record the result of a test."""
        report = yield
        if report.when == "call":
            if report.passed:
                self._proven |= {number for mark in item.iter_markers(MARK) for number in mark.args}
            suite = _suite_of(item)
            if suite is not None:
                self._note(item, self._report_of(suite))
        return report

    def _note(self, item: pytest.Item, sheet: DriverReport) -> None:
        self._tests += 1
        given = _given_to(item)
        seen: set[tuple[str, str]] = getattr(given.get("harness"), "answers", set[tuple[str, str]]())
        seeds = [given[SEED]] if SEED in given else []
        sheet.merge(DriverReport(sheet.driver, ran=[_plain(item.name)], seen=sorted(seen), seeds=seeds))

    def _report_of(self, suite: type[Suite]) -> DriverReport:
        from belay_testing.answers import possible

        driver = suite.driver or suite.__name__.removeprefix("Test")
        if driver not in self._sheets:
            self._sheets[driver] = DriverReport(
                driver,
                gaps=[(gap.test, gap.because) for gap in suite.gaps],
                expected=[name for name in dir(suite) if name.startswith("test")],
                in_disguise=suite.most_histories is not None,
                answers=sorted(answer for store in _answering(suite) for answer in possible(store)),
            )
        return self._sheets[driver]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: XdistNode) -> None:
        """Add the data sheets of a worker that has ended."""
        sent = getattr(node, "workeroutput", {}).get(SUITE_REPORT)
        if sent is None:
            return
        for sheet in (DriverReport(**each) for each in sent["sheets"]):
            self._sheets.setdefault(sheet.driver, sheet).merge(sheet)
        self._proven |= set(sent["proven"])
        self._tests += sent["tests"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker sends its data sheets; the controller writes the figures and fails a run with shortcomings."""
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            sheets = [asdict(sheet) for sheet in self._sheets.values()]
            output[SUITE_REPORT] = {"sheets": sheets, "proven": sorted(self._proven), "tests": self._tests}
            return
        path: str | None = self._config.getoption(_REPORT)
        if path:
            Path(path).write_text(json.dumps(self.figures()) + "\n")
        if session.exitstatus == pytest.ExitCode.OK and any(s.shortcomings for s in self._sheets.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each driver's data sheet."""
        sheets = [sheet for sheet in self._sheets.values() if sheet.ran]
        if not sheets:
            return
        terminalreporter.section("conformance")
        for sheet in sheets:
            seen, able = len(sheet.answers) - len(sheet.unseen), len(sheet.answers)
            part = "" if sheet.complete else " (not every test was run)"
            terminalreporter.line(f"{sheet.driver}: {seen} of {able} answers seen, {len(sheet.gaps)} gaps{part}")
            for test, because in sheet.gaps:
                terminalreporter.line(f"  gap: {test}: {because}")
            for shortcoming in sheet.shortcomings:
                terminalreporter.line(f"  {shortcoming}", red=True)

    def figures(self) -> Mapping[str, int]:
        """The figures of the run, as one flat object."""
        sheets = [sheet for sheet in self._sheets.values() if sheet.ran]
        able = {answer for sheet in sheets for answer in map(_pair, sheet.answers)}
        short = {answer for sheet in sheets for answer in sheet.unseen}
        gaps = {re.sub(r"\W+", "_", f"{sheet.driver} gaps"): len(sheet.gaps) for sheet in sheets}
        return {
            "tests": self._tests,
            "drivers": len(sheets),
            "outcomes_possible": len(able),
            "outcomes_seen": len(able - short),
            "cases": len(self._proven),
            "lockstep_seeds": min((len(sheet.seeds) for sheet in sheets if not sheet.in_disguise), default=0),
            "gaps": sum(gaps.values()),
            **gaps,
        }


def _suite_of(item: pytest.Item) -> type[Suite] | None:
    found = getattr(item, "cls", None)
    return cast("type[Suite]", found) if found is not None and hasattr(found, "answering") else None


def _answering(suite: type[Suite]) -> frozenset[str]:
    """The stores of every suite that a class has inherited."""
    return frozenset[str]().union(*(vars(base).get("answering", ()) for base in suite.__mro__))


def _chapter_of(item: pytest.Item) -> str:
    """The class that defines a test."""
    written: str = getattr(getattr(item, "function", None), "__qualname__", "")
    return written.partition(".")[0]


def _plain(name: str) -> str:
    return name.partition("[")[0]


def _given_to(item: pytest.Item) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", getattr(item, "funcargs", {}))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("belay")
    group.addoption(
        "--belay-conformance", dest=_REPORT, metavar="FILE", help="write what the conformance suite has shown as JSON"
    )
    group.addoption("--belay-seeds", type=int, default=3, metavar="N", help="histories to run in lockstep")
    group.addoption("--belay-values", type=int, default=500, metavar="N", help="values to store and read back")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of the suite and its report."""
    config.addinivalue_line("markers", f"{MARK}(number, ...): the test proves these behaviours of the stores")
    config.addinivalue_line("markers", "belay_conformance: a test of the conformance suite")
    config.pluginmanager.register(SuiteReport(config), SUITE_REPORT)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each lockstep history."""
    if SEED in metafunc.fixturenames:
        asked = cast("int", metafunc.config.getoption("--belay-seeds"))
        most: int | None = getattr(cast("Any", metafunc).cls, "most_histories", None)
        metafunc.parametrize(SEED, range(asked if most is None else min(asked, most)))


@pytest.fixture(scope="session")
def belay_values(pytestconfig: pytest.Config) -> int:
    """Number of values that the suite stores and reads back."""
    return cast("int", pytestconfig.getoption("--belay-values"))
