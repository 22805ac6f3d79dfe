"""Waiting costs nothing, loses nothing, and survives whoever waits."""

import asyncio
import contextlib
from datetime import timedelta

from belay_core import Context, step, workflow
from belay_testing.drive import decide, run_ready


async def test_a_sleep_ends_at_the_moment_fixed_when_it_began(bench):
    @workflow("sleepy")
    async def sleepy(ctx: Context) -> str:
        before = ctx.now()
        await ctx.sleep(timedelta(minutes=2))
        return str(ctx.now() - before)

    run = await bench.client.start(sleepy)
    await bench.execute_due(sleepy)
    assert (await bench.client.explain(run)).state == "timer"
    bench.clock.advance(timedelta(minutes=1, seconds=59, milliseconds=999))
    await bench.execute_due(sleepy)
    assert (await bench.client.get(run)).status == "suspended"
    bench.clock.advance(1)
    await bench.execute_due(sleepy)
    assert await run.result() == "0:02:00"


async def test_code_before_a_sleep_runs_again_but_its_steps_do_not(bench):
    @workflow("sleepy")
    async def sleepy(ctx: Context) -> None:
        bench.effects.append("body")
        await ctx.step(step(name="one", idempotent=True)(lambda: bench.effects.append("step")))
        await ctx.sleep(timedelta(seconds=1))

    await bench.client.start(sleepy)
    await bench.execute_due(sleepy)
    bench.clock.advance(1000)
    await bench.execute_due(sleepy)
    assert bench.effects == ["body", "step", "body"]


async def test_of_several_waits_the_earliest_moment_wakes_the_run_and_approval_is_shown(bench):
    @workflow("both")
    async def both(ctx: Context) -> list[str]:
        async def nap(c: Context) -> str:
            await c.sleep(timedelta(seconds=10))
            bench.effects.append("woke")
            return "slept"

        async def ask(c: Context) -> str:
            return type(await c.gate("ok", subject=1)).__name__

        return list(await ctx.gather(nap, ask))

    run = await bench.client.start(both)
    await bench.execute_due(both)
    found = await bench.client.get(run)
    assert found.waiting is not None
    assert found.waiting.reason == "approval"
    assert found.waiting.wake_at_ms == bench.clock.now() + 10_000
    bench.clock.advance(10_000)
    await bench.execute_due(both)
    assert bench.effects == ["woke"]
    async with bench.worker(both) as worker:
        await decide(worker, run)
    assert await run.result() == ["slept", "Approved"]
    assert bench.effects == ["woke", "woke"]


async def test_a_cancelled_sleep_is_cancelled_on_a_replay_too(bench):
    seen = []

    @workflow("restless")
    async def restless(ctx: Context) -> None:
        nap = asyncio.create_task(ctx.sleep(timedelta(hours=1)))
        await ctx.step(step(name="one", idempotent=True)(lambda: None))
        nap.cancel()
        try:
            await nap
        except asyncio.CancelledError as error:
            seen.append(type(error).__name__)
        await ctx.gate("stop", subject=1)

    run = await bench.client.start(restless)
    async with bench.worker(restless) as worker:
        await run_ready(worker)
        await decide(worker, run)
    assert (await bench.client.get(run)).status == "completed"
    assert (await bench.states(run))["sleep#1"] == ["cancelled"]
    assert seen == ["CancelledError", "CancelledError"]


async def test_finally_blocks_run_at_a_park_before_the_run_is_let_go(bench):
    @workflow("tidy")
    async def tidy(ctx: Context) -> None:
        try:
            await ctx.gate("stop", subject=1)
        finally:
            bench.effects.append((await bench.client.get(ctx.run_id)).status.value)

    run = await bench.client.start(tidy)
    await bench.execute_due(tidy)
    assert bench.effects == ["running"]
    assert (await bench.client.get(run)).status == "suspended"


async def test_a_body_that_swallows_the_cancel_is_unwound_all_the_same(bench):
    @workflow("stubborn")
    async def stubborn(ctx: Context) -> str:
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await ctx.gate("stop", subject=1)
                return "answered"
        return "swallowed"

    run = await bench.client.start(stubborn)
    await bench.execute_due(stubborn)
    assert (await bench.client.get(run)).status == "suspended"
    async with bench.worker(stubborn) as worker:
        await decide(worker, run)
    assert await run.result() == "answered"


async def test_a_body_that_swallows_every_cancel_stops_neither_the_worker_nor_other_runs(bench, caplog, monkeypatch):
    monkeypatch.setattr("belay_core.engine.unwind._PATIENCE", 0.002)

    @workflow("immortal")
    async def immortal(ctx: Context) -> None:
        bench.immortal = asyncio.current_task()
        while not bench.effects:
            with contextlib.suppress(BaseException):
                await ctx.gate("stop", subject=1)

    @workflow("other")
    async def other(ctx: Context) -> str:
        return await ctx.step(step(name="one")(lambda: "one"))

    await bench.client.start(immortal)
    run = await bench.client.start(other)
    await bench.execute_due(immortal, other)
    assert await run.result() == "one"
    assert "swallows every cancellation" in caplog.text
    bench.effects.append("over")
    bench.immortal.cancel()
    await asyncio.wait({bench.immortal})


async def test_a_call_in_a_finally_block_is_refused_while_the_body_is_unwound(bench):
    @workflow("late")
    async def late(ctx: Context) -> None:
        try:
            await ctx.gate("stop", subject=1)
        finally:
            await ctx.step(step(name="cleanup")(lambda: bench.effects.append("cleanup")))

    run = await bench.client.start(late)
    async with bench.worker(late) as worker:
        await run_ready(worker)
        assert bench.effects == []
        await decide(worker, run)
    assert bench.effects == ["cleanup"]
    assert (await bench.client.get(run)).status == "completed"


async def test_a_decision_made_while_the_run_is_being_parked_is_not_lost(bench):
    @workflow("racing")
    async def racing(ctx: Context) -> str:
        try:
            answer = await ctx.gate("stop", subject=1)
        finally:
            for approval in await bench.client.approvals():
                await bench.client.decide(approval, "approved")
        return type(answer).__name__

    run = await bench.client.start(racing)
    await bench.execute_due(racing)
    assert await run.result() == "Approved"


async def test_in_memory_a_decision_is_heard_without_parking(belay_stores):
    from belay_core import Worker
    from belay_drivers.sqlite import open_sqlite

    bodies = []

    @workflow("quick")
    async def quick(ctx: Context) -> str:
        bodies.append(1)
        return type(await ctx.gate("stop", subject=1)).__name__

    async with open_sqlite(":memory:") as stores, Worker(stores, [quick]) as worker, asyncio.timeout(10):
        run = await worker.client.start(quick)
        while not (asked := await worker.client.approvals(run)):
            await asyncio.sleep(0.001)
        await worker.client.decide(asked[0], "approved", by="me")
        assert await run.result() == "Approved"
    assert bodies == [1]


async def test_a_worker_parks_an_idle_run_after_a_second_and_goes_on_when_it_is_decided():
    from belay_core import Worker
    from belay_drivers.sqlite import open_sqlite

    @workflow("patient")
    async def patient(ctx: Context) -> str:
        return type(await ctx.gate("stop", subject=1)).__name__

    async with open_sqlite(":memory:") as stores, Worker(stores, [patient]) as worker, asyncio.timeout(20):
        run = await worker.client.start(patient)
        while (await worker.client.explain(run)).state != "approval":
            await asyncio.sleep(0.01)
        await worker.client.approve(run, by="me")
        assert await run.result() == "Approved"


async def test_a_body_that_awaits_something_else_beside_a_gate_is_parked_and_loses_nothing(bench):
    @workflow("mixed")
    async def mixed(ctx: Context) -> str:
        async def ask(c: Context) -> str:
            return type(await c.gate("stop", subject=1)).__name__

        async def other(c: Context) -> str:
            await asyncio.sleep(0)
            await c.step(step(name="one", idempotent=True)(lambda: bench.effects.append("one")))
            if not bench.effects.count("decided"):
                await asyncio.Event().wait()
            return "other"

        return "+".join(await ctx.gather(ask, other))

    run = await bench.client.start(mixed)
    await bench.execute_due(mixed)
    assert (await bench.client.get(run)).status == "suspended"
    bench.effects.append("decided")
    async with bench.worker(mixed) as worker:
        await decide(worker, run)
    assert await run.result() == "Approved+other"
    assert bench.effects == ["one", "decided"]
