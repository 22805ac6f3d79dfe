"""The page takes the figures of a file between its marks, and the picture shows them to scale."""

import json
import re
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from defusedxml.ElementTree import fromstring

from tests.bench.peers import page
from tests.bench.peers.figures import RATIOS, Figures, summed
from tests.bench.peers.plot import drawn

MACHINE: Figures = {
    "cores": 2.0,
    "memory_gib": 23.5,
    "disk_sync_ms": 0.15,
    "python": "3.11.7",
    "postgresql": "18.4",
    "sqlite": "3.40.1",
    "measured_on": "2026-01-02",
    "rounds": 3.0,
    "load_before": 0.1,
    "load_most": 1.5,
    "version_dbos": "3.4.0",
}
SVG = "{http://www.w3.org/2000/svg}"


def measured(own: float = 20_000, other: float = 200) -> Figures:
    own_figures = {"steps_per_s": own, "step_p50_ms": 2.125, "step_p99_ms": 4.5}
    return summed([{"belay_pg_50": own_figures, "dbos_pg_50": {"steps_per_s": other}}]) | MACHINE


def bars(figures: Figures) -> list[Element]:
    picture = fromstring(drawn(figures))
    return [each for each in picture.iter(f"{SVG}rect") if "ground" not in each.attrib["class"]]


def test_the_figures_go_between_the_marks_and_nothing_else_changes():
    before = f"# Speed\n\nwords\n\n{page.BEGIN}\nold\n{page.END}\n\nmore words\n"
    after = page.placed(before, measured())
    assert after.startswith(f"# Speed\n\nwords\n\n{page.BEGIN}\n")
    assert after.endswith(f"{page.END}\n\nmore words\n")
    assert "old" not in after
    assert page.placed(after, measured()) == after
    assert "| belay, PostgreSQL | - | 20,000 | 2.12 / 4.50 | - |" in after
    assert "| PostgreSQL, fifty runs: steps/s over DBOS | 100 (100 to 100) | at least 80 | not measured |" in after


def test_a_missed_target_is_reported():
    assert "| 10.0 (10.0 to 10.0) | at least 80: missed |" in "\n".join(page.section(measured(2_000, 200)))


def test_what_was_not_measured_is_reported_with_its_reason():
    figures = measured() | {"not_measured_restate_50": "npm did not deliver it"}
    assert "Not measured: restate_50 (npm did not deliver it)." in list(page.section(figures))


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="peers: begin"):
        page.placed(f"# Speed\n{page.BEGIN}\n", measured())


def test_every_ratio_has_its_words():
    assert {each.name.removeprefix("non_idempotent_") for each in RATIOS} == set(page.TOLD)


def test_of_several_files_the_median_counts():
    files = [measured(own) | {"measured_on": f"2026-01-0{day}"} for day, own in enumerate((3000, 1000, 2000), start=1)]
    merged = page.merged(files)
    assert (merged["belay_pg_50_steps_per_s"], merged["pg_50_over_dbos"]) == (2000, 10)
    assert merged["measured_on"] == "2026-01-03"


def test_the_command_writes_page_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "PICTURE", tmp_path / "peers.svg")
    (tmp_path / "page.md").write_text(f"# Speed\n{page.BEGIN}\n{page.END}\n")
    (tmp_path / "figures.json").write_text(json.dumps(measured()))
    assert page.main([str(tmp_path / "figures.json")]) == 0
    assert "| belay, PostgreSQL |" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "peers.svg").read_text() == drawn(measured())


def test_the_page_of_the_docs_has_the_marks():
    text = page.PAGE.read_text()
    assert re.search(f"{page.BEGIN}.*{page.END}", text, re.DOTALL)
    assert page.PICTURE.exists()


def test_a_bar_is_as_long_as_its_figure_and_stays_in_the_picture():
    own, other = (float(each.attrib["width"]) for each in bars(measured(1_000, 100)))
    assert own == pytest.approx(2 * other), "one mark of the scale further, from ten on"
    [width] = [float(each.attrib["width"]) for each in bars(measured(10_000_000, 0))]
    picture = fromstring(drawn(measured(10_000_000, 0)))
    assert width < float(picture.attrib["viewBox"].split()[2])


def test_what_was_not_measured_has_no_bar():
    assert len(bars(measured(1_000, 100))) == 2
    assert bars(MACHINE) == []


def test_the_picture_can_be_read_on_a_light_ground_and_on_a_dark_one():
    text = drawn(measured())
    assert "prefers-color-scheme: dark" in text
    light, dark = text.partition("prefers-color-scheme: dark")[::2]
    grounds = [re.findall(r"\.ground \{ fill: #(\w{2})", each)[0] for each in (light, dark)]
    letters = [re.findall(r"text \{ fill: #(\w{2})", each)[0] for each in (light, dark)]
    assert [abs(int(ground, 16) - int(text, 16)) > 150 for ground, text in zip(grounds, letters, strict=True)] == [
        True,
        True,
    ]
