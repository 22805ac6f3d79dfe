"""A replay gets the records in their order, under the keys of the first execution."""

import asyncio
from collections import defaultdict

import pytest

from belay_core import Context, DefinitionError, RunFailed, StepFailed, step, workflow
from belay_testing.cases import case
from belay_testing.drive import run_ready


class Stage:
    """Steps that end when told, and a hang to die in."""

    def __init__(self, bench):
        self.bench = bench
        self.doors = defaultdict(asyncio.Event)
        self.begun = defaultdict(asyncio.Event)
        self.stuck = asyncio.Event()

    async def work(self, name):
        self.bench.effects.append(name)
        self.begun[name].set()
        await self.doors[name].wait()
        return name

    async def hang(self):
        self.stuck.set()
        await asyncio.Event().wait()


@pytest.fixture
def stage(bench):
    return Stage(bench)


@case(97)
async def test_nothing_recorded_is_executed_again_after_a_takeover(bench, stage):
    one = step(idempotent=True, name="one")(lambda: bench.effects.append("one"))

    @workflow("flow")
    async def flow(ctx: Context) -> str:
        await ctx.step(one)
        await ctx.step(one)
        if not stage.stuck.is_set():
            await ctx.step(step(name="hang", idempotent=True)(stage.hang))
        return "done"

    run = await bench.client.start(flow)
    await bench.until_dead(flow, at=stage.stuck)
    await bench.execute_due(flow)
    assert await run.result() == "done"
    assert bench.effects == ["one", "one"]


@pytest.mark.parametrize("first", ["a", "b"])
async def test_the_first_of_two_to_end_is_the_first_on_a_replay_too(bench, stage, first):
    other = "b" if first == "a" else "a"
    winners = []

    @workflow("race")
    async def race(ctx: Context) -> str:
        tasks = {
            asyncio.create_task(ctx.step(step(name=name, idempotent=True)(stage.work), name)): name for name in "ab"
        }
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winners.append(sorted(tasks[task] for task in done))
        await asyncio.wait(tasks)
        await ctx.step(step(name="hang", idempotent=True)(stage.hang))
        return "done"

    await bench.client.start(race)
    async with bench.worker(race) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await stage.begun["a"].wait()
        await stage.begun["b"].wait()
        stage.doors[first].set()
        while not winners:
            await asyncio.sleep(0.001)
        stage.doors[other].set()
        await stage.stuck.wait()
        from belay_testing.drive import vanish

        await vanish(worker)
        await executing
    bench.clock.advance(30_001)
    stage.stuck.clear()
    await bench.until_dead(race, at=stage.stuck)
    assert winners == [[first], [first]]
    assert bench.counted() == {"a": 1, "b": 1}


async def test_the_key_is_taken_when_the_call_is_made_not_when_it_is_awaited(bench):
    async def name(which: str) -> str:
        return which

    @workflow("keys")
    async def keys(ctx: Context) -> list[str]:
        first, second = ctx.step(name, "first"), ctx.step(name, "second")
        return [await second, await first]

    run = await bench.client.start(keys)
    await bench.execute_due(keys)
    assert await run.result() == ["second", "first"]
    outcomes = {each.step_key: each.outcome for each in await bench.attempts(run)}
    assert outcomes == {"name#1": '"first"', "name#2": '"second"'}


async def test_each_item_of_a_map_has_keys_of_its_own_whatever_the_order_of_events(bench, stage):
    charged = {}

    async def look(person: str) -> str:
        return await stage.work(person)

    async def charge(person: str) -> str:
        charged.setdefault(person, []).append(person)
        return f"charged {person}"

    async def people(ctx: Context, person: str) -> str:
        await ctx.step(look, person)
        return await ctx.step(charge, person)

    @workflow("charging")
    async def charging(ctx: Context) -> list[str]:
        return await ctx.map(people, ["alice", "bob"])

    run = await bench.client.start(charging)
    async with bench.worker(charging) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await stage.begun["alice"].wait()
        stage.doors["bob"].set()
        while "bob" not in charged:
            await asyncio.sleep(0.001)
        stage.doors["alice"].set()
        await executing
    assert await run.result() == ["charged alice", "charged bob"]
    assert {each.step_key: each.outcome for each in await bench.attempts(run) if each.step == "charge"} == {
        "people#1[0]/charge#1": '"charged alice"',
        "people#1[1]/charge#1": '"charged bob"',
    }


async def test_a_map_over_a_step_keeps_the_order_of_items_and_bounds_how_many_run(bench):
    running = [0, 0]

    @step(idempotent=True)
    async def square(number: int) -> int:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(0.002)
        running[0] -= 1
        return number * number

    @workflow("squares")
    async def squares(ctx: Context) -> list[int]:
        return await ctx.map(square, range(20), limit=3)

    run = await bench.client.start(squares)
    await bench.execute_due(squares)
    assert await run.result() == [number * number for number in range(20)]
    assert running == [0, 3]


async def test_a_map_ends_every_branch_and_then_raises_the_error_of_the_lowest_item(bench):
    async def maybe(number: int) -> int:
        bench.effects.append(number)
        if number in {1, 3}:
            raise ValueError(f"item {number}")
        return number

    @workflow("partial")
    async def partial(ctx: Context) -> list[int]:
        return await ctx.map(maybe, range(5))

    run = await bench.client.start(partial)
    await bench.execute_due(partial)
    with pytest.raises(RunFailed, match="item 1"):
        await run.result()
    assert sorted(bench.effects) == [0, 1, 2, 3, 4]


async def test_gather_and_branch_give_each_task_a_scope_of_its_own(bench):
    async def say(word: str) -> str:
        return word

    async def body(ctx: Context, word: str) -> str:
        return await ctx.step(say, word)

    @workflow("scopes")
    async def scopes(ctx: Context) -> list[str]:
        left, right = await ctx.gather(lambda c: body(c, "a"), lambda c: body(c, "b"))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(body(ctx.branch("side"), word)) for word in "cd"]
        return [left, right, *(task.result() for task in tasks)]

    run = await bench.client.start(scopes)
    await bench.execute_due(scopes)
    assert await run.result() == ["a", "b", "c", "d"]
    assert sorted(await bench.states(run)) == ["gather#1[0]/say#1", "gather#1[1]/say#1", "side#1/say#1", "side#2/say#1"]


async def test_gathered_bodies_that_share_a_context_fail_the_run_even_where_the_error_is_swallowed(bench):
    async def say(word: str) -> str:
        return word

    @workflow("sharing")
    async def sharing(ctx: Context) -> str:
        async def body(word: str) -> str:
            return await ctx.step(say, word)

        await asyncio.gather(body("a"), body("b"), return_exceptions=True)
        return "fine"

    run = await bench.client.start(sharing)
    await bench.execute_due(sharing)
    with pytest.raises(RunFailed, match="DefinitionError"):
        await run.result()


async def test_now_and_random_are_the_same_on_every_replay(bench, stage):
    seen = []

    async def tick() -> None:
        bench.clock.advance(7)

    @workflow("deterministic")
    async def deterministic(ctx: Context) -> None:
        start = ctx.now()
        await ctx.step(tick)
        later = ctx.now()
        seen.append((start, later, ctx.random.random(), ctx.random.randint(1, 10**9)))
        await ctx.step(step(name="hang", idempotent=True)(stage.hang))

    await bench.client.start(deterministic)
    await bench.until_dead(deterministic, at=stage.stuck)
    stage.stuck.clear()
    await bench.until_dead(deterministic, at=stage.stuck)
    assert seen[0] == seen[1]
    assert (seen[0][1] - seen[0][0]).total_seconds() == 0.007


async def test_a_cancelled_idempotent_step_is_cut_recorded_and_cancelled_on_a_replay(bench, stage):
    caught = []

    @workflow("impatient")
    async def impatient(ctx: Context) -> None:
        task = asyncio.create_task(ctx.step(step(name="slow", idempotent=True)(stage.work), "slow"))
        try:
            await asyncio.wait_for(task, 0.05)
        except TimeoutError as error:
            caught.append(type(error).__name__)
        await ctx.step(step(name="hang", idempotent=True)(stage.hang))

    run = await bench.client.start(impatient)
    await bench.until_dead(impatient, at=stage.stuck)
    stage.stuck.clear()
    await bench.until_dead(impatient, at=stage.stuck)
    assert caught == ["TimeoutError", "TimeoutError"]
    assert (await bench.states(run))["slow#1"] == ["cancelled"]
    assert bench.effects == ["slow"]


async def test_a_cancelled_step_that_is_not_idempotent_runs_to_its_end_and_is_recorded_as_abandoned(bench, stage):
    @workflow("impatient")
    async def impatient(ctx: Context) -> str:
        try:
            await asyncio.wait_for(ctx.step(step(name="slow")(stage.work), "slow"), 0.05)
        except TimeoutError:
            stage.doors["slow"].set()
        return "went on"

    run = await bench.client.start(impatient)
    await bench.execute_due(impatient)
    assert await run.result() == "went on"
    assert (await bench.states(run))["slow#1"] == ["abandoned"]


async def test_steps_a_body_leaves_open_are_awaited_and_recorded(bench, stage):
    stage.doors["open"].set()

    @workflow("leaving")
    async def leaving(ctx: Context) -> str:
        bench.task = asyncio.create_task(ctx.step(step(name="open")(stage.work), "open"))
        await stage.begun["open"].wait()
        return "left"

    run = await bench.client.start(leaving)
    await bench.execute_due(leaving)
    assert await run.result() == "left"
    assert (await bench.states(run))["open#1"] == ["succeeded"]


async def test_another_input_under_a_recorded_name_is_noted_and_the_record_stands(bench, stage):
    inputs = iter(["old", "new"])

    async def look(what: str) -> str:
        bench.effects.append(what)
        return what

    @workflow("drifting")
    async def drifting(ctx: Context) -> str:
        found = await ctx.step(look, next(inputs))
        if not stage.stuck.is_set():
            await ctx.step(step(name="hang", idempotent=True)(stage.hang))
        return found

    run = await bench.client.start(drifting)
    await bench.until_dead(drifting, at=stage.stuck)
    await bench.execute_due(drifting)
    assert await run.result() == "old"
    assert bench.effects == ["old"]
    notes = [each.facts for each in await bench.client.journal(run) if each.kind == "noted"]
    assert notes[0] == '{"note":"other_input","step":"look#1"}'


@pytest.mark.parametrize("code", ["same", "other"])
async def test_a_payment_never_stands_in_for_another(bench, stage, code):
    people = iter([["alice", "bob"], ["bob"]])

    async def pay(person: str) -> str:
        bench.effects.append(person)
        return person

    @workflow("paying")
    async def paying(ctx: Context) -> None:
        for person in next(people):
            await ctx.step(pay, person)
        await ctx.step(step(name="hang", idempotent=True)(stage.hang))

    @workflow("paying")
    async def paying_next(ctx: Context) -> None:
        for person in list(next(people)):
            await ctx.step(pay, person)
        await ctx.step(step(name="hang", idempotent=True)(stage.hang))

    run = await bench.client.start(paying)
    await bench.until_dead(paying, at=stage.stuck)
    await bench.execute_due(paying if code == "same" else paying_next)
    explained = await bench.client.explain(run)
    assert (explained.state, bench.effects) == ("needs_review", ["alice", "bob"])
    assert "diverged" in explained.because


async def test_a_kind_that_changed_goes_to_review(bench, stage):
    as_gate = False

    async def ask() -> str:
        return "x"

    @workflow("changing")
    async def changing(ctx: Context) -> None:
        if as_gate:
            await ctx.gate("ask", subject="x")
        else:
            await ctx.step(ask)
        await ctx.step(step(name="hang", idempotent=True)(stage.hang))

    run = await bench.client.start(changing)
    await bench.until_dead(changing, at=stage.stuck)
    as_gate = True
    await bench.execute_due(changing)
    assert (await bench.client.explain(run)).state == "needs_review"


async def test_a_new_idempotent_step_is_executed_and_a_removed_one_is_noted(bench, stage):
    async def old() -> str:
        return "old"

    @step(idempotent=True)
    async def new() -> str:
        return "new"

    @workflow("evolving")
    async def evolving(ctx: Context) -> str:
        await ctx.step(old)
        await ctx.step(step(name="hang", idempotent=True)(stage.hang))
        return await ctx.step(new)

    @workflow("evolving")
    async def evolved(ctx: Context) -> str:
        return await ctx.step(new)

    run = await bench.client.start(evolving)
    await bench.until_dead(evolving, at=stage.stuck)
    await bench.execute_due(evolved)
    assert await run.result() == "new"
    assert [each.kind for each in await bench.client.journal(run)].count("noted") == 1


async def test_a_result_that_no_longer_fits_goes_to_review_and_harms_no_other_run(bench, stage):
    async def count() -> str:
        return "three"

    @workflow("typing")
    async def typing(ctx: Context, hold: bool) -> None:
        await ctx.step(count)
        if hold:
            await ctx.step(step(name="hang", idempotent=True)(stage.hang))

    run = await bench.client.start(typing, True)
    await bench.until_dead(typing, at=stage.stuck)

    async def recount() -> int:
        return 3

    recount.__name__ = "count"

    @workflow("typing")
    async def retyped(ctx: Context, hold: bool) -> None:
        await ctx.step(recount)

    others = [await bench.client.start(retyped, False) for _ in range(20)]
    await bench.execute_due(retyped)
    explained = await bench.client.explain(run)
    assert explained.state == "needs_review"
    assert "undecodable" in explained.because
    for other in others:
        await other.result()


async def test_results_reach_the_author_only_after_their_commit(bench):
    committed = []

    @workflow("committing")
    async def committing(ctx: Context) -> None:
        for number in range(3):
            await ctx.step(step(name="one", idempotent=True)(lambda n: n), number)
            history = await bench.client.history(ctx.run_id)
            committed.append(sum(1 for each in history.attempts if each.state == "succeeded"))

    await bench.client.start(committing)
    await bench.execute_due(committing)
    assert committed == [1, 2, 3]


async def test_a_failed_step_may_be_handled_and_the_run_goes_on(bench):
    async def broken() -> str:
        raise OSError("down")

    async def fallback() -> str:
        return "plan b"

    @workflow("handling")
    async def handling(ctx: Context) -> str:
        try:
            return await ctx.step(broken)
        except StepFailed:
            return await ctx.step(fallback)

    run = await bench.client.start(handling)
    await bench.execute_due(handling)
    assert await run.result() == "plan b"


async def test_arguments_that_are_no_data_are_refused_by_name(bench):
    async def use(thing: object) -> None: ...

    @workflow("arguing")
    async def arguing(ctx: Context) -> None:
        await ctx.step(use, object())

    run = await bench.client.start(arguing)
    await bench.execute_due(arguing)
    with pytest.raises(RunFailed, match="arguments: step use: a value of type object is no data"):
        await run.result()


def test_a_map_body_must_take_an_item_or_a_context_and_an_item():
    from belay_core.workflows.branches import takes_context

    assert takes_context(lambda ctx, item: None)
    assert not takes_context(lambda item: None)
    assert not takes_context(lambda item, more=None: None)
    with pytest.raises(DefinitionError, match="its body takes an item"):
        takes_context(lambda: None)
