"""Code that waits for something of its own between two calls takes the branch that its first execution took."""

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from belay_core import Client, Context, Worker, step, workflow
from belay_drivers.sqlite import open_sqlite
from belay_testing.drive import run_ready, vanish
from belay_testing.faults import FaultStores, kill_after, kill_before, meanwhile


@step(idempotent=True)
async def look(name: str) -> str:
    return name


@pytest.mark.parametrize("turns", [0, 10, 20, 50])
async def test_a_replay_takes_the_branch_of_the_first_execution(bench, turns):
    a_is_first, chosen = asyncio.Event(), []

    @step(idempotent=True)
    async def late(name: str) -> str:
        await a_is_first.wait()
        return name

    async def thought_over(call, turns):
        found = await call
        for _ in range(turns):  # parsing, a queue, a file: anything that is no ctx call
            await asyncio.sleep(0)
        return found

    @workflow("flow")
    async def flow(ctx: Context) -> str:
        calls = ctx.step(look, "a"), ctx.step(late, "b")
        tasks = [asyncio.create_task(thought_over(*each)) for each in zip(calls, (turns, 0), strict=True)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        chosen.append("a" if tasks[0] in done else "b")
        a_is_first.set()
        await ctx.step(look.named(f"pay_{chosen[-1]}"), chosen[-1])
        await asyncio.gather(*tasks)
        await ctx.gate("go", subject=1)
        return chosen[-1]

    run = await bench.client.start(flow)
    await bench.execute_due(flow)  # the first execution, up to the gate
    for approval in await bench.client.approvals(run):
        await bench.client.decide(approval, "approved")
    await bench.execute_due(flow)  # the replay
    paid = sorted(each.step for each in await bench.attempts(run) if each.step.startswith("pay"))
    assert (chosen, paid) == (["a", "a"], ["pay_a"])


async def test_an_order_kept_in_memory_alone_is_reproduced_or_stops_the_run(bench):
    a_is_first = asyncio.Event()

    @step(idempotent=True)
    async def late(name: str) -> str:
        await a_is_first.wait()
        return name

    @workflow("flow")
    async def flow(ctx: Context) -> str:
        order = []

        async def line(call, turns):
            found = await call
            for _ in range(turns):
                await asyncio.sleep(0)
            order.append(found)
            a_is_first.set()

        await asyncio.gather(line(ctx.step(look, "a"), 50), line(ctx.step(late, "b"), 0))
        await ctx.step(look.named(f"pay_{order[0]}"), order[0])
        await ctx.gate("go", subject=1)
        return order[0]

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    for approval in await bench.client.approvals(run):
        await bench.client.decide(approval, "approved")
    await bench.execute_due(flow)
    paid = sorted(each.step for each in await bench.attempts(run) if each.step.startswith("pay"))
    state = (await bench.client.explain(run)).state
    assert paid == ["pay_a"]
    assert state in {"completed", "needs_review"}


async def test_a_foreign_wait_that_is_quicker_on_the_replay_takes_no_other_branch_unseen(bench):
    waits = [
        20_000,
        0,
    ]  # turns of the foreign wait in the first execution, and in the replay: no author can promise them
    b_may_go = asyncio.Event()

    @step(idempotent=True)
    async def late(name: str) -> str:
        await b_may_go.wait()
        return name

    @workflow("flow")
    async def flow(ctx: Context) -> str:
        async def line(call, turns):
            found = await call
            b_may_go.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            return found

        tasks = [
            asyncio.create_task(line(ctx.step(look, "a"), waits.pop(0))),
            asyncio.create_task(line(ctx.step(late, "b"), 0)),
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = "a" if tasks[0] in done else "b"
        await ctx.step(look.named(f"pay_{first}"), first)
        await asyncio.gather(*tasks)
        await ctx.gate("go", subject=1)
        return first

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    for approval in await bench.client.approvals(run):
        await bench.client.decide(approval, "approved")
    await bench.execute_due(flow)
    paid = sorted(each.step for each in await bench.attempts(run) if each.step.startswith("pay"))
    state = (await bench.client.explain(run)).state
    assert len(paid) == 1
    assert state in {"completed", "needs_review"}


# ---------------------------------------------------------------- a real worker, default settings

RUNS = 100


async def no_time():
    pass


async def many_turns():
    for _ in range(50):
        await asyncio.sleep(0)


def in_thread(seconds):
    async def wait():
        await asyncio.to_thread(asyncio.run, asyncio.sleep(seconds))

    return wait


async def a_file():
    await asyncio.to_thread(Path(__file__).read_bytes)


async def a_socket():
    async def answer(reader, writer):
        await asyncio.sleep(0.005)
        writer.write(await reader.readexactly(1))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b"x")
        await reader.readexactly(1)
        writer.close()


def some_time(seconds):
    async def wait():
        await asyncio.sleep(seconds)

    return wait


WAITS = {
    "none": no_time,
    "50 turns": many_turns,
    "a thread of 5 ms": in_thread(0.005),
    "a file": a_file,
    "a socket": a_socket,
    "50 ms": some_time(0.05),
    "a thread of 150 ms": in_thread(0.15),
    "300 ms": some_time(0.3),
}


def racing(wait, shape):
    """Two calls race; the author's code waits for something of its own once the first is answered."""

    @step(idempotent=True)
    async def quick(name: str) -> str:
        return name

    @step(idempotent=True)
    async def slow(name: str) -> str:
        await asyncio.sleep(0.6)
        return name

    @step
    async def act(name: str) -> str:
        return name

    async def lines(ctx):
        if shape == "tasks":
            return [
                asyncio.create_task(thought_over(ctx.step(quick, "a"))),
                asyncio.create_task(plain(ctx.step(slow, "b"))),
            ]
        one, other = ctx.branch("one"), ctx.branch("other")

        async def first():
            return await thought_over(one.step(quick, "a"))

        async def second():
            return await other.step(slow, "b")

        return [asyncio.create_task(first()), asyncio.create_task(second())]

    async def thought_over(call):
        found = await call
        await wait()
        return found

    async def plain(call):
        return await call

    @workflow("racing")
    async def flow(ctx: Context) -> str:
        tasks = await lines(ctx)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = "a" if tasks[0].done() else "b"
        await ctx.step(act.named(f"act_{first}"), first)
        await asyncio.gather(*tasks)
        await ctx.gate("go", subject=1)
        return first

    return flow


async def ends(client, runs):
    """The state in which each run comes to rest: ended, or in review because its order cannot be reproduced."""
    while True:
        states = [(await client.explain(run)).state for run in runs]
        if {"completed", "failed", "needs_review"}.issuperset(states):
            return states
        await asyncio.sleep(0.2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", ["tasks", "branches"])
@pytest.mark.parametrize("wait", WAITS)
async def test_a_worker_that_replays_takes_the_branch_of_the_one_before(tmp_path, wait, shape):
    flow = racing(WAITS[wait], shape)
    async with open_sqlite(str(tmp_path / "belay.db")) as stores:
        client = Client(stores, approver="ada", telemetry=False)
        async with Worker(stores, [flow], telemetry=False):
            runs = [await client.start(flow) for _ in range(RUNS)]
            while len(await client.approvals(limit=1_000)) < RUNS:
                await asyncio.sleep(0.05)
        for approval in await client.approvals(limit=1_000):
            await client.decide(approval, "approved")
        async with Worker(stores, [flow], telemetry=False):
            states = await ends(client, runs)
        acted = [[each.step for each in (await client.history(run)).attempts if "act" in each.step] for run in runs]
    assert [steps for steps in acted if len(steps) != 1] == []
    assert "failed" not in states
    # What came in the same instant as an answer is of no recorded order: a busy machine sends a few runs to review.
    assert states.count("completed") > RUNS / 2


# ---------------------------------------------------------------- random bodies, killed at random calls


def random_body(rng):
    """Three lines of two steps each, with waits of their own in between; the first line to end chooses what is done."""
    waits = [[rng.choice([0, 0, 3, 30, 300]) for _ in range(3)] for _ in range(3)]

    @step(idempotent=True)
    async def look(name: str) -> str:
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
        return name

    @step
    async def act(name: str) -> str:
        return name

    async def turns(count):
        for _ in range(count):
            await asyncio.sleep(0)

    async def line(ctx, number):
        for at in range(2):
            await turns(waits[number][at])
            await ctx.step(look.named(f"look{number}{at}"), f"{number}{at}")
        await turns(waits[number][2])
        return number

    @workflow("random")
    async def flow(ctx: Context) -> int:
        branches = [ctx.branch(f"line{number}") for number in range(3)]
        tasks = [asyncio.create_task(line(branch, number)) for number, branch in enumerate(branches)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = min(tasks.index(each) for each in done)
        await ctx.step(act.named(f"act{first}"), str(first))
        await asyncio.gather(*tasks)
        return first

    return flow


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(40))
async def test_a_run_killed_at_random_takes_no_other_branch_unseen(belay_stores, belay_clock, seed):
    rng = random.Random(seed)  # noqa: S311
    flow = random_body(rng)
    async with belay_stores as stores:
        client = Client(stores, approver="ada", telemetry=False)
        run = await client.start(flow)
        for _ in range(rng.randrange(1, 4)):
            fault = rng.choice([kill_before, kill_after])()
            faulty = FaultStores(stores, at=rng.randrange(2, 14), fault=fault)
            async with AsyncExitStack() as stack:
                worker = await stack.enter_async_context(
                    Worker(faulty.stores, [flow], telemetry=False, background=False)
                )
                executing = asyncio.create_task(run_ready(worker))
                while not executing.done() and not faulty.gone:
                    await asyncio.sleep(0)
                if faulty.gone:
                    await vanish(worker)
                await asyncio.wait([executing])
                executing.exception()
            belay_clock.advance(30_001)
        async with Worker(stores, [flow], telemetry=False, background=False) as worker:
            await run_ready(worker)
        state = (await client.explain(run)).state
        acted = {each.step for each in (await client.history(run)).attempts if each.step.startswith("act")}
    assert state in {"completed", "needs_review"}
    assert len(acted) == 1 or state == "needs_review"


async def test_an_answer_that_is_being_written_is_given_before_those_of_later_places(bench):
    writing, written, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @step
    async def act(name: str) -> str:
        await may_end.wait()
        return name

    heard: list[list[str]] = []

    @workflow("flow")
    async def flow(ctx: Context) -> None:
        order: list[str] = []
        heard.append(order)

        async def line(call):
            try:
                order.append(await call)
            except asyncio.CancelledError:
                order.append("given up")

        acting = asyncio.create_task(line(ctx.step(act, "act")))
        looking = asyncio.create_task(line(ctx.step(look, "look")))
        await asyncio.sleep(0)
        await writing.wait()
        acting.cancel()
        for _ in range(50):
            await asyncio.sleep(0)
        written.set()
        await asyncio.gather(acting, looking)
        may_end.set()
        await ctx.gate("go", subject=1)

    async def slow():
        writing.set()
        await written.wait()

    run = await bench.client.start(flow)
    stores = FaultStores(bench.stores, at=2, of="record", fault=meanwhile("slow", slow, before=False))
    async with bench.worker_over(stores, flow) as worker:
        await run_ready(worker)
    for approval in await bench.client.approvals(run):
        await bench.client.decide(approval, "approved")
    await bench.execute_due(flow)
    assert (await bench.client.explain(run)).state == "completed"
    assert heard == [["look", "given up"]] * 2


async def test_what_was_open_when_a_sleep_ended_is_open_again_before_the_sleep_ends(bench):
    in_flight, chosen = asyncio.Event(), []

    @step(idempotent=True)
    async def never_recorded(name: str) -> str:
        in_flight.set()
        await asyncio.get_running_loop().create_future()
        return name

    @workflow("flow")
    async def flow(ctx: Context) -> None:
        waiting = asyncio.create_task(ctx.sleep(timedelta(seconds=1)))
        for _ in range(20 + len(chosen) * 300):  # slower in the replay
            await asyncio.sleep(0)
        chosen.append("late" if waiting.done() else "early")
        acting = asyncio.create_task(ctx.step(never_recorded.named(chosen[-1]), chosen[-1]))
        await waiting
        await ctx.step(look, "after")
        await acting

    run = await bench.client.start(flow)
    for _ in range(2):
        in_flight.clear()
        async with bench.worker(flow) as worker:
            executing = asyncio.create_task(run_ready(worker))
            await in_flight.wait()
            while "look#1" not in await bench.states(run):
                bench.clock.advance(100)
                await asyncio.sleep(0)
            await vanish(worker)
            await executing
        bench.clock.advance(30_001)
    assert chosen == ["early", "early"]
