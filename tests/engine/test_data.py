"""Values come back as they were put in, fresh and resumed; what would not come back is refused before a step acts."""

import collections
import decimal
import enum
import pathlib
import random
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from belay_core import Context, DefinitionError, RunFailed, step, workflow
from belay_core.errors import ValueRefused
from belay_core.values.codecs import codec_for
from belay_core.values.digests import value_digest
from belay_core.workflows.registry import catalogue
from belay_testing.drive import decide, run_ready

T = TypeVar("T")


class Aliased(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    first_name: str


class TwoAliases(BaseModel):
    name: str = Field(validation_alias="in", serialization_alias="out")


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    net: int

    @computed_field
    @property
    def gross(self) -> int:
        return self.net * 2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Home(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Box(BaseModel, Generic[T]):
    value: T


class Private(BaseModel):
    shown: int
    _hidden: int = 0


@dataclass
class Derived:
    net: int
    gross: int = field(init=False)

    def __post_init__(self):
        self.gross = self.net * 2


class Pair(NamedTuple):
    left: int
    right: str


class Row(TypedDict):
    a: int


class Colour(enum.Enum):
    RED = "red"


KEPT = [
    (Aliased, Aliased(firstName="Ada")),
    (list[Aliased], [Aliased(firstName="Ada")]),
    (TwoAliases, TwoAliases(**{"in": "x"})),
    (Computed, Computed(net=1)),
    (Home, Home(pet=Dog())),
    (Box[int], Box[int](value=1)),
    (Private, Private(shown=1)),
    (Derived, Derived(1)),
    (Pair, Pair(1, "b")),
    (Row, {"a": 1}),
    (Colour, Colour.RED),
    (Optional[Aliased], None),  # noqa: UP045  (both spellings are tried)
    (Annotated[int, Field(gt=1)], 2),
    (Literal["a", "b"], "b"),
    (dict[int, str], {1: "a"}),
    (dict[Colour, int], {Colour.RED: 1}),
    (collections.deque[int], collections.deque([1])),
    (frozenset[str], frozenset({"a", "b"})),
    (tuple[int, ...], (1, 2)),
    (float, -0.0),
    (bytes, b"\x00\xff"),
    (uuid.UUID, uuid.UUID(int=7)),
    (pathlib.Path, pathlib.Path("/srv")),
    (decimal.Decimal, decimal.Decimal("1.10")),
    (date, date.max),
    (datetime, datetime(2026, 1, 1, tzinfo=UTC)),
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1)),
    (timedelta, timedelta(microseconds=1)),
    (int | str, "5"),
    (Any, {"a": [1, None, True]}),
]


@pytest.mark.parametrize(("annotation", "value"), KEPT, ids=range(len(KEPT)))
async def test_inputs_results_subjects_and_outcomes_are_the_same_fresh_and_resumed(bench, annotation, value):
    seen = []

    async def give():
        return value

    give.__annotations__["return"] = annotation

    @workflow("typed")
    async def typed(ctx: Context, given: annotation) -> annotation:
        found = await ctx.step(give)
        seen.append((repr(given), repr(found)))
        answer = await ctx.gate("boss", subject=found, of=annotation)
        return answer.subject

    run = await bench.client.start(typed, value)
    async with bench.worker(typed) as worker:
        await run_ready(worker)
        await decide(worker, run)
    assert await run.result() == value
    assert seen[0] == seen[1]


REFUSED = [
    (float, float("nan")),
    (decimal.Decimal, decimal.Decimal("NaN")),
    (datetime | str, "2026-01-01T00:00:00"),  # would come back as a moment
    (dict[str, Any], {"a": (1, 2)}),
    (set[int], frozenset({1})),
    (int, True),
    (str, "\ud800"),
    (Any, {1: "a"}),
    (Any, 2**53),
]


@pytest.mark.parametrize(("annotation", "value"), REFUSED, ids=range(len(REFUSED)))
def test_what_would_come_back_as_something_else_is_refused_and_not_repeated(annotation, value):
    with pytest.raises(ValueRefused) as refused:
        codec_for(annotation).encode(value)
    assert "2026" not in str(refused.value)


@pytest.mark.parametrize("annotation", [dict, dict[str, Any], dict[str, object], list, list[Any], list[object]])
def test_a_container_of_plain_json_is_read_back_as_another_one_that_is_the_same_in_every_type(annotation):
    inner = {"a": [1, 1.0, True, None, -0.0, "\N{SNOWMAN}", 1e22], "b": {}}
    given = inner if codec_for(annotation).annotation in (dict, dict[str, Any], dict[str, object]) else [inner]
    text, read = codec_for(annotation).round_trip(given)
    later = codec_for(annotation).decode(text)
    assert repr(read) == repr(later) == repr(given)
    assert read is not given


@pytest.mark.parametrize(
    ("annotation", "value"), [(dict, {1: 2}), (dict, {"a": (1,)}), (list, [{1}]), (list, (1,)), (dict, {"a": 2**53})]
)
def test_a_container_of_anything_else_is_refused(annotation, value):
    with pytest.raises(ValueRefused):
        codec_for(annotation).round_trip(value)


def test_what_a_constructor_hides_is_not_lost_silently():
    hiding = Private(shown=1)
    hiding._hidden = 7
    with pytest.raises(ValueRefused):
        codec_for(Private).encode(hiding)


def test_a_set_reads_back_equal_in_whatever_order_it_was_filled():
    rng, codec = random.Random(1), codec_for(set[str])  # noqa: S311  (the same numbers each time)
    for _ in range(500):
        given = {str(rng.random()) for _ in range(rng.randint(2, 12))}
        assert codec.round_trip(given)[1] == given


async def test_a_gate_over_a_set_is_the_same_gate_in_another_order(bench):
    orders = [["a", "b", "c", "d", "e", "f"], ["f", "e", "d", "c", "b", "a"]]

    class Names(BaseModel):
        names: set[str]

    @workflow("sets")
    async def sets(ctx: Context) -> None:
        order = orders[min(len(bench.effects), 1)]
        bench.effects.append(order)
        await ctx.gate("boss", subject=Names(names=set(order)))
        await ctx.gate("boss", subject=Names(names=set(order)))

    run = await bench.client.start(sets)
    async with bench.worker(sets) as worker:
        await run_ready(worker)
        await decide(worker, run)
        await decide(worker, run)
    assert (await bench.client.get(run)).status == "completed"
    assert [each.kind for each in await bench.client.journal(run)].count("noted") == 0


@pytest.mark.parametrize("asked", [True, False])
async def test_a_subject_as_large_as_a_value_may_be_is_asked_or_skipped_like_any_other(bench, asked):
    subject = '"' * (2**19 - 1)  # each sign is stored as two

    @workflow("large")
    async def large(ctx: Context) -> int:
        answer = await ctx.gate("boss", subject=subject, when=lambda _: asked)
        return len(answer.subject)

    run = await bench.client.start(large)
    async with bench.worker(large) as worker:
        await run_ready(worker)
        if asked:
            await decide(worker, run)
    assert await run.result() == len(subject)


def returning(annotation):
    async def pay():
        raise AssertionError("it must not run")

    pay.__annotations__["return"] = annotation
    return pay


@pytest.mark.parametrize("annotation", ["Nowhere", threading.Lock, "list[Nowhere]", range])
async def test_a_result_type_that_cannot_be_kept_is_refused_before_the_step_acts(bench, annotation):
    @workflow("paying")
    async def paying(ctx: Context) -> None:
        await ctx.step(returning(annotation))

    run = await bench.client.start(paying)
    await bench.execute_due(paying)
    with pytest.raises(RunFailed, match="DefinitionError"):
        await run.result()


@pytest.mark.parametrize("annotation", [threading.Lock, range])
def test_a_workflow_over_types_that_are_no_data_is_refused_when_it_is_registered(annotation):
    @workflow("locked")
    async def locked(ctx: Context) -> annotation: ...

    with pytest.raises(DefinitionError, match="no type whose values can be stored"):
        catalogue([locked])


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def within_itself():
    value = []
    value.append(value)
    return value


def laughing(depth):
    value = ["ha"]
    for _ in range(depth):
        value = [value] * 9
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (nested(5_000), "is nested too deep or holds a number too large"),
        (10**5_000, "is nested too deep or holds a number too large"),
        (within_itself(), "holds more than 1000000 values"),
        ({"a": (laughing(100), 1)}, "holds more than 1000000 values"),
    ],
    ids=["deep", "large", "cycle", "shared"],
)
def test_arguments_that_cannot_be_written_down_are_refused_by_their_type(value, why):
    with pytest.raises(ValueRefused, match=f"a value of type (list|int|dict) {why}"):
        value_digest(value)


@pytest.mark.parametrize("annotation", [list[Any], list, Any])
def test_a_result_that_holds_a_part_of_it_many_times_is_refused_before_it_is_written_out(annotation):
    with pytest.raises(ValueRefused, match=r"list holds more than 1000000 values|members limit"):
        codec_for(annotation).encode(laughing(100))


class HostileEq(BaseModel):
    a: int = 1

    def __eq__(self, other):
        raise RuntimeError("no comparing")

    __hash__ = None


class HostileField(BaseModel):
    a: int = 1

    @computed_field
    @property
    def b(self) -> int:
        raise RuntimeError("no reading")


@pytest.mark.parametrize("value", [HostileEq(), HostileField()], ids=["eq", "field"])
async def test_a_value_that_cannot_be_looked_at_does_not_harm_the_worker(bench, value):
    async def give():
        return value

    give.__annotations__["return"] = type(value)

    @workflow("hostile")
    async def hostile(ctx: Context) -> None:
        await ctx.step(step(idempotent=True)(give))

    run = await bench.client.start(hostile)
    await bench.execute_due(hostile)
    assert (await bench.client.get(run)).status in {"completed", "failed"}
