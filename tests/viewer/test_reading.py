"""The judge of what a viewer shows, itself judged: every fault that is planted is found."""

from dataclasses import replace

from tests.viewer import check, reading
from tests.viewer.reading import Seen

RUN = "run-1"


def span(span_id: str, parent_id: str | None, name: str, outcome: str, **attributes: object) -> Seen:
    return Seen("trace-1", span_id, parent_id, name, {"outcome": outcome, **attributes})


WHOLE = [
    span("1", None, "start letter", "success", **{"belay.run.id": RUN}),
    span("2", "1", "belay.run_store.start", "started", run_id=RUN),
    span("3", "1", "invoke_workflow letter", "acquired", **{"belay.run.id": RUN, "belay.epoch": 1}),
    span("4", "3", "step write", "succeeded", **{"belay.run.id": RUN}),
]


def test_a_whole_tree_has_one_root_and_no_orphan():
    assert reading.orphans(WHOLE) == []
    assert [each.span_id for each in reading.roots(WHOLE)] == ["1"]
    assert reading.strangers(WHOLE, RUN) == []
    assert reading.of_run(WHOLE, RUN) == WHOLE
    assert reading.paths(WHOLE)[("start letter [success]", "invoke_workflow letter [acquired]")] == 1


def test_a_span_whose_parent_never_came_is_an_orphan_and_a_root():
    broken = [each for each in WHOLE if each.span_id != "3"]
    assert [each.span_id for each in reading.orphans(broken)] == ["4"]
    assert [each.span_id for each in reading.roots(broken)] == ["1", "4"]


def test_a_parent_in_another_trace_is_none():
    apart = [*WHOLE[:3], replace(WHOLE[3], trace_id="trace-2")]
    assert reading.orphans(apart) == [apart[3]]


def test_a_stretch_in_a_trace_of_its_own_is_a_second_root():
    apart = replace(WHOLE[2], span_id="5", trace_id="trace-2", parent_id=None)
    assert [each.span_id for each in reading.roots(reading.of_run([*WHOLE, apart], RUN))] == ["1", "5"]


def test_a_span_about_another_run_is_a_stranger():
    other = span("5", "3", "belay.run_store.park", "parked", run_id="run-2")
    silent = span("6", "3", "belay.run_store.park", "failure")
    assert reading.strangers([*WHOLE, other, silent], RUN) == [other, silent]


def test_spans_are_read_whether_keys_are_nested_or_not():
    shown = {"context": {"trace_id": "t", "span_id": "s"}, "parent_id": None, "name": "gate editor"}
    for attributes in ({"belay.run.id": RUN}, {"belay": {"run": {"id": RUN}}}):
        [one] = reading.seen([{**shown, "attributes": attributes}])
        assert one.run == RUN


def test_a_text_of_a_payload_is_found_wherever_it_stands():
    assert reading.telling([{"events": [{"x": "a secret!"}]}, {"name": "fine"}], "secret") == 1


def test_a_tree_that_lacks_a_span_or_has_one_too_many_is_named():
    shown = [
        {
            "context": {"trace_id": each.trace_id, "span_id": each.span_id},
            "parent_id": each.parent_id,
            "name": each.name,
            "attributes": each.attributes,
        }
        for each in [*WHOLE, replace(WHOLE[3], span_id="5")]
    ]
    figures, faults = check.judged(shown, {RUN: "letter"})
    assert (figures["trees"], figures["orphans"], figures["steps"]) == (1, 0, 2)
    assert any("too many" in fault and "step write" in fault for fault in faults)
    assert any("too few" in fault and "execute letter [completed]" in fault for fault in faults)
    assert "letter: its owners were [1]" in faults
    assert "decisions is 0, not 4" in faults
