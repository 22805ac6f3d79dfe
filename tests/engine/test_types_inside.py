"""What is inside a container keeps its type, or is refused with the place where it would not."""

import enum
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from belay_core import Context, RunFailed, step, workflow
from belay_core.errors import ValueRefused
from belay_core.values.codecs import codec_for
from belay_testing.drive import run_ready


class Colour(enum.StrEnum):
    DEEP_TEAL = "teal-secret"


class Size(enum.IntEnum):
    BIG = 1


class Point(NamedTuple):
    x: int
    y: int


class Text(str):
    __slots__ = ()


class Number(int):
    pass


@dataclass
class Bag:
    """Iterable in a way that does not show its field."""

    first: int

    def __iter__(self):
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Line:
    name: str
    count: int = 0


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
    counts: list[int] = []


class Row(TypedDict):
    name: str


KEPT: list[tuple[Any, Any]] = [
    (list[Colour], [Colour.DEEP_TEAL]),
    (dict[Size, str], {Size.BIG: "b"}),
    (list[Point], [Point(1, 2)]),
    (list[float], [1, 2.5]),
    (set[frozenset[int]], {frozenset({1})}),
    (list[Line], [Line("a", 1)]),
    (dict[str, list[Model]], {"a": [Model(name="a", counts=[1])]}),
    (list[bool], [True]),
    (list[int | str], [1, "a"]),
    (list[Row], [{"name": "a"}]),
    (deque[int], deque([1])),
]

CHANGED: list[tuple[Any, Any, str]] = [
    (list[str], [Colour.DEEP_TEAL], "Colour at [0] becomes str"),
    (list[int], [0, True], "bool at [1] becomes int"),
    (list[int], [Size.BIG], "Size at [0] becomes int"),
    (list[tuple[int, int]], [Point(1, 2)], "Point at [0] becomes tuple"),
    (list[str], [Text("a")], "Text at [0] becomes str"),
    (list[int], [Number(1)], "Number at [0] becomes int"),
    (dict[str, int], {Text("a"): 1}, "Text at a key of the top becomes str"),
    (dict[str, int], {Colour.DEEP_TEAL: 1}, "Colour at a key of the top becomes str"),
    (dict[int, str], {True: "a"}, "bool at a key of the top becomes int"),
    (dict[str, int], {"secret": True}, "bool at [...] becomes int"),
    (set[str], {Colour.DEEP_TEAL}, "Colour at [...] becomes str"),
    (frozenset[int], frozenset({Size.BIG}), "Size at [...] becomes int"),
    (tuple[str, ...], ("a", Colour.DEEP_TEAL), "Colour at [1] becomes str"),
    (list[Line], [Line(Colour.DEEP_TEAL)], "Colour at [0].name becomes str"),
    (Bag, Bag(True), "bool at .first becomes int"),
    (Line, Line("a", True), "bool at .count becomes int"),
    (Model, Model.model_construct(name=Colour.DEEP_TEAL), "Colour at .name becomes str"),
    (Model, Model.model_construct(name="a", counts=[True]), "bool at .counts[0] becomes int"),
    (list[Point], [Point(True, 2)], "bool at [0].x becomes int"),
    (list[Row], [Row(name=Colour.DEEP_TEAL)], "Colour at [0][...] becomes str"),
    (list[dict[str, int]], [OrderedDict(a=1)], "OrderedDict at [0] becomes dict"),
    (list[dict[str, int]], [defaultdict(int, a=1)], "defaultdict at [0] becomes dict"),
    (list[dict[str, int]], [Counter(a=1)], "Counter at [0] becomes dict"),
]


@pytest.mark.parametrize(("annotation", "value"), KEPT)
def test_a_value_of_the_types_that_are_written_is_kept(annotation: Any, value: Any) -> None:
    assert codec_for(annotation).round_trip(value)[1] == value


@pytest.mark.parametrize(("annotation", "value", "where"), CHANGED)
def test_a_member_of_another_type_is_refused_with_its_place(annotation: Any, value: Any, where: str) -> None:
    with pytest.raises(ValueRefused) as refused:
        codec_for(annotation).encode(value)
    said = str(refused.value)
    assert where in said or said.endswith((f"cannot be stored as {annotation}", f"would not read back as {annotation}"))
    assert "secret" not in said


async def test_a_step_with_such_a_result_fails_the_run_with_the_place(bench):
    @step(retries=0, idempotent=True)
    async def colours() -> list[str]:
        return ["a", Text("b")]

    @workflow("painting")
    async def painting(ctx: Context) -> list[str]:
        return await ctx.step(colours)

    run = await bench.client.start(painting)
    async with bench.worker(painting) as worker:
        await run_ready(worker)
    with pytest.raises(RunFailed, match=r"Text at \[1\] becomes str"):
        await run.result()
