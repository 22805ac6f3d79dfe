"""What a viewer shows, judged: one tree a run, every parent known, every span about its run, no payload shown."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str, ...]
"""A span and all above it, each as ``name [outcome]``, the root first."""


@dataclass(frozen=True)
class Seen:
    """One span as a viewer holds it."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def word(self) -> str:
        return f"{self.name} [{self.attributes.get('outcome')}]"

    @property
    def run(self) -> object:
        """The run it is about, under either family of keys."""
        return self.attributes.get("belay.run.id", self.attributes.get("run_id"))


def seen(shown: Iterable[Mapping[str, Any]]) -> list[Seen]:
    """Spans from Phoenix's answer."""
    return [
        Seen(
            one["context"]["trace_id"],
            one["context"]["span_id"],
            one["parent_id"],
            one["name"],
            dict(_flat(one["attributes"])),
        )
        for one in shown
    ]


def orphans(spans: Sequence[Seen]) -> list[Seen]:
    """Those whose parent never arrived."""
    known = {(each.trace_id, each.span_id) for each in spans}
    return [each for each in spans if each.parent_id is not None and (each.trace_id, each.parent_id) not in known]


def roots(spans: Sequence[Seen]) -> list[Seen]:
    """Those that stand at the margin: without a parent, or without one that arrived."""
    lost = orphans(spans)
    return [each for each in spans if each.parent_id is None or each in lost]


def paths(spans: Sequence[Seen]) -> Counter[Path]:
    """The shape of trees: every path with the number of its spans."""
    by_id = {each.span_id: each for each in spans}

    def path(span: Seen) -> Path:
        above = by_id.get(span.parent_id or "")
        return (*(path(above) if above else ()), span.word)

    return Counter(path(each) for each in spans)


def of_run(spans: Sequence[Seen], run_id: str) -> list[Seen]:
    """All spans of the traces in which the run was started or worked on."""
    traces = {
        each.trace_id
        for each in spans
        if each.attributes.get("belay.run.id") == run_id and each.name.startswith(("start ", "invoke_workflow "))
    }
    return [each for each in spans if each.trace_id in traces]


def strangers(spans: Sequence[Seen], run_id: str) -> list[Seen]:
    """Those in a run's traces that are not about it."""
    return [each for each in spans if each.run != run_id]


def telling(shown: Iterable[Mapping[str, Any]], secret: str) -> int:
    """How many spans show a text that was only ever part of a payload."""
    return sum(secret in json.dumps(one) for one in shown)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Attributes by their full keys, whether a viewer nests them at the dots or not."""
    for key, one in value.items():
        if isinstance(one, Mapping):
            yield from _flat(one, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", one
