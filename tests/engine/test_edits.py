"""What a person writes, an approver's edit or an operator's result: executed as it is written, or refused."""

import json
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Literal

import pytest
from pydantic import BaseModel, Field, computed_field

from belay_core import (
    AlreadyDecided,
    Approved,
    Context,
    Decided,
    Happened,
    InvalidInput,
    InvalidTransitionError,
    Rejected,
    Retry,
    StepContext,
    ValueRefused,
    Workflow,
    gate,
    step,
    workflow,
)
from belay_core.records import commands
from belay_core.values.codecs import codec_for
from belay_core.values.digests import text_digest
from belay_core.values.json_schema import mismatch


class Currency(StrEnum):
    EUR = "eur"
    USD = "usd"


class Line(BaseModel):
    what: str
    cents: int = Field(ge=0)


@dataclass(frozen=True)
class Order:
    number: int
    dry_run: bool
    currency: Currency
    price: float
    lines: list[Line]
    note: str | None = None
    tags: dict[str, int] = field(default_factory=dict)
    unit: Literal["kg", "m"] = "kg"


ORDER = Order(7, True, Currency.EUR, 1.5, [Line(what="a", cents=3)])
TEXT = (
    '{"number":7,"dry_run":true,"currency":"eur","price":1.5,"lines":[{"what":"a","cents":3}],'
    '"note":null,"tags":{},"unit":"kg"}'
)


def edited(**members) -> str:
    return json.dumps({**json.loads(TEXT), **members})


@workflow("ordering")
async def in_function(ctx: Context) -> Order | None:
    answer = await ctx.gate("go", subject=ORDER)
    return answer.subject if isinstance(answer, Approved) else None


class InClass(Workflow[None, Order | None]):
    @gate(on_reject="continue")
    def go(self, ctx: StepContext[None]) -> Order:
        return ORDER

    @step(idempotent=True)
    def last(self, ctx: StepContext[None]) -> Order | None:
        answer = ctx.out(InClass.go)
        return answer.subject if isinstance(answer, Approved) else None


@pytest.fixture(params=[in_function, InClass], ids=["function", "class"])
def flow(request):
    return request.param


WRONG = [
    (edited(number=True), "number: must be a whole number"),
    (edited(number=7.0), "number: must be a whole number"),
    (edited(number=" 8 "), "number: must be a whole number"),
    (edited(dry_run=0), "dry_run: must be true or false"),
    (edited(dry_run="yes"), "dry_run: must be true or false"),
    (edited(currency="chf"), 'currency: must be one of "eur", "usd"'),
    (edited(unit="lb"), 'unit: must be one of "kg", "m"'),
    (edited(price="1.5"), "price: must be a number"),
    (edited(note=5), "note: fits none of the types"),
    (edited(tags={"a": "1"}), r"tags\.\*: must be a whole number"),
    (edited(lines=[{"what": "a", "cents": -1}]), r"lines\[0\]\.cents: must be at least 0"),
    (edited(lines=[{"what": "a", "cents": 1, "cent": 2}]), r"lines\[0\]: has a member that does not belong"),
    (edited(lines={"what": "a", "cents": 1}), "lines: must be a list"),
    (json.dumps({("dry-run" if k == "dry_run" else k): v for k, v in json.loads(TEXT).items()}), "dry_run: is missing"),
    (edited(curency="eur"), "has a member that does not belong there"),
    (TEXT.replace('"note":null,', ""), "note: is missing; every member has to be written"),
    (TEXT[:-1] + ',"number":8}', "contains the same object key twice"),
    ("null", "must be an object"),
    ("[]", "must be an object"),
]  # fmt: skip


async def asked(bench, flow):
    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    [approval] = await bench.client.approvals(run)
    return run, approval


@pytest.mark.parametrize(("text", "words"), WRONG)
async def test_an_edit_that_is_not_of_the_subjects_type_is_refused(bench, flow, text, words):
    run, approval = await asked(bench, flow)
    with pytest.raises(InvalidInput, match=f"edited: {words}") as refused:
        await bench.client.decide(approval, "approved", edited_text=text)
    assert "8" not in str(refused.value)
    assert (await bench.client.approvals(run))[0].decision is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, ORDER),
        (edited(price=2), Order(7, True, Currency.EUR, 2.0, [Line(what="a", cents=3)])),
        (edited(note="x", tags={"k": 1}, unit="m"), replace(ORDER, note="x", tags={"k": 1}, unit="m")),
    ],
)  # fmt: skip
async def test_what_is_executed_is_what_was_written(bench, flow, text, expected):
    run, approval = await asked(bench, flow)
    assert isinstance(await bench.client.decide(approval, "approved", edited_text=text), Decided)
    await bench.execute_due(flow)
    assert await run.result() == expected


async def test_an_edit_that_no_schema_was_asked_about_is_checked_before_it_is_used(bench, flow):
    """Stored by a client of an older release: the run goes to review, and the decision can be replaced."""
    run, approval = await asked(bench, flow)
    text = edited(number=7.0)
    command = commands.Decide(
        approval.approval_id, "approved", approval.subject_digest, "ana", None, text, text_digest(text)
    )
    assert isinstance(await bench.stores.approvals.decide(command), Decided)
    await bench.execute_due(flow)
    explained = await bench.client.explain(run)
    assert explained.state == "needs_review"
    assert "its edit does not fit: the written value would be read as something else at number" in explained.because
    assert "replace what was written (--replace)" in explained.because
    assert isinstance(await bench.client.approve(run, "go", edited=ORDER, replace=True), Decided)
    await bench.execute_due(flow)
    assert await run.result() == ORDER


async def test_a_decision_can_be_replaced_until_a_worker_has_acted_on_it(bench, flow):
    run, _ = await asked(bench, flow)
    await bench.client.reject(run, "go", by="bob")
    with pytest.raises(InvalidTransitionError):
        await bench.client.approve(run, "go")
    assert isinstance(await bench.client.approve(run, "go", edited=ORDER, by="eve", replace=True), Decided)
    assert isinstance(await bench.client.reject(run, "go", by="mia", reason="no", replace=True), Decided)
    words = [json.loads(each.facts) for each in await bench.client.journal(run) if each.kind == "decided"]
    assert [(each["by"], each.get("replaces")) for each in words] == [("bob", None), ("eve", "bob"), ("mia", "eve")]
    await bench.execute_due(flow)
    assert await run.result() is None
    with pytest.raises(InvalidTransitionError):
        await bench.client.approve(run, "go", replace=True)


async def test_a_decision_that_a_worker_has_is_not_replaced(bench):
    answers = []

    @workflow("acting")
    async def acting(ctx: Context) -> str:
        first = await ctx.gate("go", subject=1)
        approval = (await bench.client.history(ctx.run_id)).approvals[0]
        answers.append(await bench.client.decide(approval, "rejected", replace=True))
        return type(first).__name__

    run = await bench.client.start(acting)
    await bench.execute_due(acting)
    await bench.client.approve(run, "go")
    await bench.execute_due(acting)
    assert (await run.result(), type(answers[0])) == ("Approved", AlreadyDecided)


@pytest.fixture
def charging(bench, flow):
    """A workflow in the same form whose step's end is unknown once a worker has died in it."""

    async def charge() -> Order:
        bench.effects.append("charge")
        return Order

    if flow is in_function:

        @workflow("charging")
        async def function(ctx: Context) -> Order:
            return await ctx.step(step(name="charge", of=Order)(charge))

        return function

    class Charging(Workflow[None, Order]):
        workflow_name = "charging"

        @step(name="charge")
        async def charge(self, ctx: StepContext[None]) -> Order:
            bench.effects.append("charge")
            return Order  # no value of the type: it took place, and cannot be kept

    return Charging


@pytest.mark.parametrize(("text", "words"), WRONG)
async def test_a_result_that_is_not_of_the_steps_type_is_refused(bench, charging, text, words):
    run = await bench.client.start(charging)
    await bench.execute_due(charging)
    with pytest.raises(InvalidInput, match=f"outcome: {words}"):
        await bench.client.resolve(run, Happened(text))
    assert (await bench.client.explain(run)).state == "needs_review"


async def test_an_operators_result_can_be_replaced_until_a_worker_has_acted_on_it(bench, charging):
    run = await bench.client.start(charging)
    await bench.execute_due(charging)
    await bench.client.resolve(run, Happened(edited(number=1)), by="bob")
    with pytest.raises(InvalidTransitionError, match=r"bob has said so at .*; replace it, or start a worker"):
        await bench.client.resolve(run, Happened(TEXT))
    await bench.client.resolve(run, Retry(), by="eve", replace=True)
    await bench.client.resolve(run, Happened(TEXT), by="mia", replace=True)
    words = [json.loads(each.facts) for each in await bench.client.journal(run) if each.kind == "resolved"]
    assert [(each["by"], each.get("replaces")) for each in words] == [("bob", None), ("eve", "bob"), ("mia", "eve")]
    await bench.execute_due(charging)
    assert (await run.result(), bench.effects) == (ORDER, ["charge"])


async def test_a_result_that_was_stored_without_a_check_is_checked_before_it_is_used(bench, charging):
    run = await bench.client.start(charging)
    await bench.execute_due(charging)
    command = commands.Resolve(run.run_id, Happened(edited(number=True)), "bob", "charge#1")
    await bench.stores.runs.resolve(command)
    await bench.execute_due(charging)
    assert "the given result does not fit" in (await bench.client.explain(run)).because
    await bench.client.resolve(run, Happened(TEXT), replace=True)
    await bench.execute_due(charging)
    assert (await run.result(), bench.effects) == (ORDER, ["charge"])


async def test_a_word_without_a_step_is_about_the_one_that_is_orphaned(bench, charging):
    run = await bench.client.start(charging)
    await bench.execute_due(charging)
    await bench.client.resolve(run, Retry())
    await bench.execute_due(charging)
    assert bench.effects == ["charge", "charge"]


async def test_where_several_are_orphaned_the_step_has_to_be_named(bench):
    @step
    async def charge(number: int) -> int:
        return object()

    @workflow("several")
    async def several(ctx: Context) -> list[int]:
        return await ctx.map(charge, [1, 2])

    run = await bench.client.start(several)
    await bench.execute_due(several)
    for word in (Retry(), Happened("1")):
        with pytest.raises(InvalidInput, match=r"step_key: several steps are orphaned, name one: .*\[0\].*\[1\]"):
            await bench.client.resolve(run, word)


KEPT = [
    (int, "7"), (float, "7"), (float, "7.5"), (str, '" 8 "'), (bool, "true"), (list[int], "[1,2]"), (set[int], "[2,1]"),
    (date, '"2026-01-31"'), (Decimal, '"1.50"'), (dict[str, list[int]], '{"a":[1]}'), (int | None, "null"),
    (tuple[int, str], '[1,"a"]'), (Order, TEXT),
]  # fmt: skip
CHANGED = [
    (int, "7.0"), (int, "true"), (int, '"7"'), (float, "true"), (float, '"7"'), (str, "7"), (bool, "1"),
    (bool, '"yes"'),
    (list[int], "[1,2.0]"), (list[int], '{"0":1}'), (date, '"2026-01-31T00:00:00"'), (Decimal, "1.5"),
    (dict[str, int], '{"a":1,"a":2}'), (tuple[int, str], '[1,"a",2]'), (Order, edited(more=1)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), KEPT)
def test_what_is_read_as_it_is_written(kind, text):
    codec = codec_for(kind)
    assert codec.encode(codec.decode_written(text)) is not None


@pytest.mark.parametrize(("kind", "text"), CHANGED)
def test_what_would_be_converted_is_refused(kind, text):
    with pytest.raises(ValueRefused):
        codec_for(kind).decode_written(text)


class Computed(BaseModel):
    cents: int

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * self.cents


@dataclass(frozen=True)
class Empty:
    pass


@pytest.mark.parametrize(
    "value",
    [ORDER, Computed(cents=3), Empty(), 7, 7.5, "x", [1], {"a": 1}, None, date(2026, 1, 31), Decimal("1.50"),
     Currency.EUR],
)  # fmt: skip
def test_what_is_stored_of_a_value_is_what_a_person_may_write(value):
    codec = codec_for(type(value))
    text = codec.encode(value)
    assert mismatch(codec.schema, json.loads(text)) is None
    assert codec.decode_written(text) == value


def test_an_object_without_members_has_none():
    assert mismatch(codec_for(Empty).schema, {"more": 1}) == "has a member that does not belong there; it has none"


async def test_plain_json_may_be_edited_into_other_plain_json(bench):
    @workflow("plain")
    async def plain(ctx: Context) -> object:
        answer = await ctx.gate("go", subject={"a": 1})
        assert not isinstance(answer, Rejected)
        return answer.subject

    run = await bench.client.start(plain)
    await bench.execute_due(plain)
    await bench.client.approve(run, "go", edited={"b": [1, 2.5]})
    await bench.execute_due(plain)
    assert await run.result() == {"b": [1, 2.5]}
