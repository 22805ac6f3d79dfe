"""A run of newer code that an older worker takes: nothing of its input is dropped."""

from dataclasses import dataclass

import pytest
from pydantic import AliasChoices, BaseModel, Field

from belay_core import Context, StepContext, Workflow, step, workflow
from belay_core.values.codecs import codec_for


@dataclass(frozen=True)
class Old:
    cents: int


@dataclass(frozen=True)
class New:
    cents: int
    dry_run: bool = False


def flow_of(form: str, kind: type, effects: list):
    if form == "function":

        @workflow("paying")
        async def function(ctx: Context, given: kind) -> str:
            effects.append(given)
            return f"{given}"

        return function

    class Paying(Workflow[kind, str]):
        workflow_name = "paying"

        @step(idempotent=True)
        def pay(self, ctx: StepContext[kind]) -> str:
            effects.append(ctx.input)
            return f"{ctx.input}"

    return Paying


@pytest.mark.parametrize("form", ["function", "class"])
async def test_an_older_worker_leaves_it_to_one_that_reads_all_of_it(bench, form, caplog):
    old, new = flow_of(form, Old, bench.effects), flow_of(form, New, bench.effects)
    run = await bench.client.start(new, New(5, dry_run=True))
    for _ in range(3):
        await bench.execute_due(old)
        bench.clock.advance(5_000)
    explained = await bench.client.explain(run)
    assert (explained.state, bench.effects) == ("released", [])
    assert explained.because == (
        "no worker here has code for it: its input has dry_run, which the code of the worker that took it does not read"
    )
    assert "is left to a worker with other code: its input has dry_run" in caplog.text
    await bench.execute_due(new)
    assert (await run.result(), bench.effects) == (f"{New(5, dry_run=True)}", [New(5, dry_run=True)])


@pytest.mark.parametrize("form", ["function", "class"])
async def test_a_newer_worker_takes_older_runs_with_its_defaults(bench, form):
    old, new = flow_of(form, Old, bench.effects), flow_of(form, New, bench.effects)
    run = await bench.client.start(old, Old(5))
    await bench.execute_due(new)
    assert (await run.result(), bench.effects) == (f"{New(5)}", [New(5)])


async def test_it_can_be_cancelled_by_a_worker_that_cannot_read_it(bench):
    old, new = flow_of("function", Old, bench.effects), flow_of("function", New, bench.effects)
    run = await bench.client.start(new, New(5, dry_run=True))
    await bench.execute_due(old)
    await bench.client.cancel(run)
    await bench.execute_due(old)
    assert (await bench.client.get(run)).status == "cancelled"


class Renamed(BaseModel):
    amount: int = Field(validation_alias=AliasChoices("cents", "amount"))


@pytest.mark.parametrize(
    ("kind", "text", "place"),
    [
        (New, '{"cents":5}', None),
        (Old, '{"cents":5,"dry_run":true}', "dry_run"),
        (list[Old], '[{"cents":5},{"cents":5,"dry_run":false}]', "[1].dry_run"),
        (dict[str, Old], '{"a":{"cents":5,"dry_run":false}}', "a.dry_run"),
        (dict[str, int], '{"a":1}', None),
        (Renamed, '{"cents":5}', None),
        (int, "5", None),
        (dict, '{"a":1}', None),
    ],
)
def test_where_something_is_not_read(kind, text, place):
    assert codec_for(kind).unread(text) == place
