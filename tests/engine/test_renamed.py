"""A step that was renamed while runs were open: its effect is not repeated without an operator's word."""

import asyncio

import pytest

from belay_core import (
    Context,
    DefinitionError,
    GiveUp,
    Happened,
    InvalidInput,
    Retry,
    RunFailed,
    StepContext,
    Workflow,
    gate,
    step,
    workflow,
)


@pytest.fixture
def paid(bench) -> list:
    return bench.effects


def as_code_of(mark: str):
    """A workflow's function as if it had been written otherwise: with a constant of its own."""

    def other(fn):
        fn.__code__ = fn.__code__.replace(co_consts=(*fn.__code__.co_consts, mark))
        return fn

    return other


def paying(form: str, effects: list, name: str, **given):
    """Pays, asks at a gate, and sends; the paying step has this name."""

    async def pay(amount: int) -> str:
        effects.append(f"{name} {amount}")
        return f"receipt of {name}"

    if form == "function":
        paying_step = step(name=name, **given)(pay)

        @workflow("paying")
        @as_code_of(name)
        async def in_function(ctx: Context) -> str:
            receipt = await ctx.step(paying_step, 5)
            await ctx.gate("go", subject=receipt)
            return receipt

        return in_function

    class Paying(Workflow[None, str]):
        workflow_name = "paying"

        @step(name=name, **given)
        async def paying(self, ctx: StepContext[None]) -> str:
            return await pay(5)

        @gate
        def go(self, ctx: StepContext[None]) -> str:
            return ctx.out(self.paying)

        @step(name="last", idempotent=True)
        def last(self, ctx: StepContext[None]) -> str:
            return ctx.out(self.paying)

    return Paying


@pytest.fixture(params=["function", "class"])
def form(request) -> str:
    return request.param


async def renamed_run(bench, form, paid, **given):
    """A run that has paid as ``charge``, and is then taken by code whose step is called ``pay``."""
    old, new = paying(form, paid, "charge"), paying(form, paid, "pay", **given)
    run = await bench.client.start(old)
    await bench.execute_due(old)
    await bench.client.approve(run, "go")
    await bench.execute_due(new)
    return run, new


async def test_a_renamed_step_is_not_executed_again(bench, form, paid):
    run, _ = await renamed_run(bench, form, paid)
    explained = await bench.client.explain(run)
    assert (explained.state, paid) == ("needs_review", ["charge 5"])
    assert "diverged at pay#1" in explained.because
    assert "charge#1 is recorded and was not called" in explained.because
    assert """--happened '"receipt of charge"'""" in explained.ways_out[0]


async def test_happened_means_it_was_renamed(bench, form, paid):
    run, new = await renamed_run(bench, form, paid)
    await bench.client.resolve(run, Happened('"receipt of charge"'), step_key="pay#1")
    await bench.execute_due(new)
    assert (await run.result(), paid) == ("receipt of charge", ["charge 5"])


async def test_renamed_again_before_a_worker_has_used_the_word_nothing_is_executed(bench, form, paid):
    run, _ = await renamed_run(bench, form, paid)
    await bench.client.resolve(run, Happened('"receipt of charge"'), step_key="pay#1")
    await bench.execute_due(paying(form, paid, "disburse"))
    assert paid == ["charge 5"]


async def test_retry_means_it_is_new(bench, form, paid):
    run, new = await renamed_run(bench, form, paid)
    await bench.client.resolve(run, Retry(), step_key="pay#1")
    await bench.execute_due(new)
    assert (await run.result(), paid) == ("receipt of pay", ["charge 5", "pay 5"])


async def test_give_up_repeats_nothing(bench, form, paid):
    run, new = await renamed_run(bench, form, paid)
    await bench.client.resolve(run, GiveUp())
    await bench.execute_due(new)
    with pytest.raises(RunFailed):
        await run.result()
    assert paid == ["charge 5"]


@pytest.mark.parametrize("was", ["charge", ("first", "charge")])
async def test_its_former_name_goes_on_with_its_record(bench, form, paid, was):
    run, _ = await renamed_run(bench, form, paid, was=was)
    assert (await run.result(), paid) == ("receipt of charge", ["charge 5"])


async def test_an_idempotent_step_may_be_renamed(bench, form, paid):
    run, _ = await renamed_run(bench, form, paid, idempotent=True)
    assert (await run.result(), paid) == ("receipt of pay", ["charge 5", "pay 5"])


async def test_calls_go_on_to_be_counted_under_the_former_name(bench, paid):
    def counting(name: str, times: int, **given):
        @step(name=name, **given)
        async def pay(number: int) -> int:
            paid.append(f"{name} {number}")
            return number

        @workflow("counting")
        @as_code_of(name)
        async def flow(ctx: Context) -> int:
            total = 0
            for number in range(times):
                total += await ctx.step(pay, number)
            await ctx.gate("go", subject=total)
            return total + await ctx.step(pay, 10)

        return flow

    old, new = counting("charge", 2), counting("pay", 2, was="charge")
    run, fresh = await bench.client.start(old), None
    await bench.execute_due(old)
    fresh = await bench.client.start(new)
    await bench.execute_due(new)
    for each in (run, fresh):
        await bench.client.approve(each, "go")
    await bench.execute_due(new)
    assert (await run.result(), await fresh.result()) == (11, 11)
    assert list(await bench.states(run)) == ["charge#1", "charge#2", "charge#3", "go#1"]
    assert list(await bench.states(fresh)) == ["go#1", "pay#1", "pay#2", "pay#3"]
    assert sorted(paid) == ["charge 0", "charge 1", "pay 0", "pay 1", "pay 10", "pay 10"]


def mapping(name: str, paid: list, **given):
    @step(name=name, **given)
    async def pay(number: int) -> int:
        paid.append(f"{name} {number}")
        return number

    @workflow("mapping")
    @as_code_of(name)
    async def flow(ctx: Context) -> list[int]:
        done = await ctx.map(pay, [1, 2, 3])
        await ctx.gate("go", subject=done)
        return done

    return flow


async def mapped_run(bench, paid, **given):
    old, new = mapping("charge", paid), mapping("pay", paid, **given)
    run = await bench.client.start(old)
    await bench.execute_due(old)
    await bench.client.approve(run, "go")
    await bench.execute_due(new)
    return run, new


async def test_no_item_of_a_renamed_map_is_executed_again(bench, paid):
    run, new = await mapped_run(bench, paid)
    assert (await bench.client.explain(run)).state == "needs_review"
    assert sorted(paid) == ["charge 1", "charge 2", "charge 3"]
    orphans = {each.step_key: each.meta for each in await bench.attempts(run) if each.state == "orphaned"}
    assert len(orphans) == 3
    for key, meta in orphans.items():
        assert f'"{key.replace("pay", "charge")}"' in meta
        [known] = [each.outcome for each in await bench.attempts(run) if each.step_key == key.replace("pay", "charge")]
        await bench.client.resolve(run, Happened(known), step_key=key)
    await bench.execute_due(new)
    assert (await run.result(), len(paid)) == ([1, 2, 3], 3)


async def test_a_map_goes_on_under_its_former_name(bench, paid):
    run, _ = await mapped_run(bench, paid, was="charge")
    assert (await run.result(), len(paid)) == ([1, 2, 3], 3)


async def test_a_step_put_before_a_recorded_one_is_asked_about_once(bench, paid):
    @step
    async def charge() -> str:
        paid.append("charge")
        return "charged"

    @step
    async def notify() -> str:
        paid.append("notify")
        return "notified"

    def flow_of(*steps):
        @workflow("inserting")
        @as_code_of(str(len(steps)))
        async def flow(ctx: Context) -> None:
            for each in steps:
                await ctx.step(each)
            await ctx.gate("go", subject=1)

        return flow

    old, new = flow_of(charge), flow_of(notify, charge)
    run = await bench.client.start(old)
    await bench.execute_due(old)
    await bench.client.approve(run, "go")
    await bench.execute_due(new)
    assert "diverged at notify#1" in (await bench.client.explain(run)).because
    await bench.client.resolve(run, Retry(), step_key="notify#1")
    await bench.execute_due(new)
    await run.result()
    assert paid == ["charge", "notify"]


async def test_what_was_asked_about_and_is_new_is_asked_about_again_by_the_next(bench, paid):
    """A step that is said to be new takes no record: the next one may still be the one that was renamed."""

    def flow_of(*names: str):
        async def act() -> str:
            return "done"

        def acting(name: str):
            async def named() -> str:
                paid.append(name)
                return await act()

            return step(name=name)(named)

        steps = [acting(name) for name in names]

        @workflow("splitting")
        @as_code_of(str(names))
        async def flow(ctx: Context) -> None:
            for each in steps:
                await ctx.step(each)
            await ctx.gate("go", subject=1)

        return flow

    old, new = flow_of("charge"), flow_of("notify", "pay")
    run = await bench.client.start(old)
    await bench.execute_due(old)
    await bench.client.approve(run, "go")
    await bench.execute_due(new)
    await bench.client.resolve(run, Retry(), step_key="notify#1")
    await bench.execute_due(new)
    assert "diverged at pay#1" in (await bench.client.explain(run)).because
    await bench.client.resolve(run, Happened('"done"'), step_key="pay#1")
    await bench.execute_due(new)
    await run.result()
    assert paid == ["charge", "notify"]


async def test_new_steps_after_the_recorded_ones_and_side_by_side_ask_nothing(bench, paid):
    @step
    async def act(number: int) -> int:
        paid.append(number)
        return number

    def flow_of(*rounds):
        @workflow("growing")
        @as_code_of(str(len(rounds)))
        async def flow(ctx: Context) -> int:
            for numbers in rounds:
                await asyncio.gather(*(ctx.step(act, number) for number in numbers))
                await ctx.map(act, numbers)
            await ctx.gate("go", subject=1)
            other = step(name="other")(act.fn)
            return await ctx.step(other, 9)

        return flow

    old, new = flow_of([1, 2, 3, 4, 5]), flow_of([1, 2, 3, 4, 5], [6, 7])
    run = await bench.client.start(old)
    await bench.execute_due(old)
    await bench.client.approve(run, "go")
    await bench.execute_due(new)
    assert await run.result() == 9
    assert sorted(paid) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 9]


async def test_a_failed_effect_is_none_that_is_repeated(bench, paid):
    def flow_of(name: str, *, broken: bool):
        @step(name=name)
        async def pay() -> str:
            paid.append(name)
            if broken:
                raise ConnectionError("down")
            return "done"

        @workflow("failing")
        @as_code_of(name)
        async def flow(ctx: Context) -> str:
            try:
                return await ctx.step(pay)
            except Exception:
                await ctx.gate("go", subject=1)
                raise

        return flow

    old, new = flow_of("charge", broken=True), flow_of("pay", broken=False)
    run = await bench.client.start(old)
    await bench.execute_due(old)
    await bench.client.approve(run, "go")
    await bench.execute_due(new)
    assert (await run.result(), paid) == ("done", ["charge", "pay"])


def test_a_former_name_has_the_rules_of_names():
    for wrong, error, words in [
        ("a/b", InvalidInput, "was: must not contain"),
        (3, InvalidInput, "was: must be 1 to"),
        ("pay", DefinitionError, "was: must be a former name; pay is the present one"),
    ]:
        with pytest.raises(error, match=words):

            @step(was=wrong)
            def pay() -> None: ...
