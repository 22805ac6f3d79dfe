"""Taking over, cancelling, leaving: a run is never lost, never doubled, and its end never changes."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

from belay_core import (
    Context,
    GiveUp,
    InvalidTransitionError,
    Retry,
    RunCancelled,
    RunFailed,
    RunNotFoundError,
    Worker,
    step,
    workflow,
)
from belay_core.stores.run_contract import AlreadyRequested, CancelRequested, Terminal
from belay_testing.cases import case
from belay_testing.drive import decide, run_ready, vanish


def paying(bench, *, idempotent, stuck):
    """Three steps; the second hangs after its effect, the first time."""

    @step(idempotent=True)
    async def before() -> None:
        bench.effects.append("before")

    @step(idempotent=idempotent)
    async def pay() -> str:
        bench.effects.append("pay")
        if bench.counted()["pay"] == 1:
            stuck.set()
            await asyncio.Event().wait()
        return "paid"

    @step(idempotent=True)
    async def after() -> None:
        bench.effects.append("after")

    @workflow("paying")
    async def flow(ctx: Context) -> str:
        await ctx.step(before)
        receipt = await ctx.step(pay)
        await ctx.step(after)
        return receipt

    return flow


@case(97)
async def test_an_idempotent_step_whose_owner_died_is_executed_again(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=True, stuck=stuck)
    run = await bench.client.start(flow)
    await bench.until_dead(flow, at=stuck)
    await bench.execute_due(flow)
    assert await run.result() == "paid"
    assert bench.counted() == {"before": 1, "pay": 2, "after": 1}


async def test_a_step_that_is_not_idempotent_goes_to_review_when_its_owner_dies(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=False, stuck=stuck)
    run = await bench.client.start(flow)
    await bench.until_dead(flow, at=stuck)
    for _ in range(3):
        await bench.execute_due(flow)
    explained = await bench.client.explain(run)
    assert explained.state == "needs_review"
    assert any("--happened" in way for way in explained.ways_out)
    assert bench.counted() == {"before": 1, "pay": 1}
    assert (await bench.states(run))["pay#1"] == ["orphaned"]


async def test_it_happened_goes_on_with_the_operators_result(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=False, stuck=stuck)
    run = await bench.client.start(flow)
    await bench.until_dead(flow, at=stuck)
    await bench.execute_due(flow)
    await bench.client.resolve(run, bench.client.happened("receipt 7"), step_key="pay#1", by="bob")
    await bench.execute_due(flow)
    assert await run.result() == "receipt 7"
    assert bench.counted() == {"before": 1, "pay": 1, "after": 1}
    orphan = next(each for each in await bench.attempts(run) if each.step == "pay")
    assert (orphan.state, orphan.resolved_by) == ("succeeded", "bob")
    assert orphan.resolved_at_ms is not None


async def test_it_did_not_happen_executes_the_step_once_more(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=False, stuck=stuck)
    run = await bench.client.start(flow)
    await bench.until_dead(flow, at=stuck)
    await bench.execute_due(flow)
    await bench.client.resolve(run, Retry(), step_key="pay#1")
    await bench.execute_due(flow)
    assert await run.result() == "paid"
    assert (await bench.states(run))["pay#1"] == ["orphaned", "succeeded"]


async def test_giving_up_fails_the_run(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=False, stuck=stuck)
    run = await bench.client.start(flow)
    await bench.until_dead(flow, at=stuck)
    await bench.execute_due(flow)
    await bench.client.resolve(run, GiveUp())
    with pytest.raises(RunFailed, match="GivenUp"):
        await run.result()
    with pytest.raises(InvalidTransitionError):
        await bench.client.resolve(run, Retry())


async def test_an_orphan_that_is_never_reached_again_keeps_the_run_from_completing(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=False, stuck=stuck)
    run = await bench.client.start(flow)
    await bench.until_dead(flow, at=stuck)

    @workflow("paying")
    async def shorter(ctx: Context) -> str:
        return "nothing to pay"

    await bench.execute_due(shorter)
    assert (await bench.client.explain(run)).state == "needs_review"
    await bench.client.resolve(run, bench.client.happened("paid"), step_key="pay#1")
    await bench.execute_due(shorter)
    assert await run.result() == "nothing to pay"


async def test_siblings_of_an_orphan_go_on(bench):
    stuck = asyncio.Event()
    sent = asyncio.Event()

    @step
    async def pay() -> None:
        stuck.set()
        await asyncio.Event().wait()

    @step(idempotent=True)
    async def send() -> None:
        if stuck.is_set() and not sent.is_set():
            await asyncio.Event().wait()
        bench.effects.append("sent")

    @workflow("siblings")
    async def siblings(ctx: Context) -> None:
        await ctx.gather(lambda c: c.step(pay), lambda c: c.step(send))

    run = await bench.client.start(siblings)
    await bench.until_dead(siblings, at=stuck)
    sent.set()
    await bench.execute_due(siblings)
    assert bench.effects == ["sent"]
    assert (await bench.client.explain(run)).state == "needs_review"


async def test_a_word_on_an_earlier_orphan_does_not_count_for_a_later_one(bench):
    stuck, begun, hold = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @step
    async def pay() -> None:
        bench.effects.append("pay")
        stuck.set()
        await asyncio.Event().wait()

    @step(idempotent=True)
    async def busy() -> None:
        begun.set()
        await hold.wait()

    async def side(ctx: Context) -> None:
        if len(bench.effects) == 2:
            await ctx.step(busy)  # keeps the run in memory

    @workflow("twice")
    async def twice(ctx: Context) -> None:
        await ctx.gather(lambda c: c.step(pay), lambda c: c.gate("boss", subject=1), side)

    run = await bench.client.start(twice)
    await bench.until_dead(twice, at=stuck)
    await bench.execute_due(twice)
    await bench.client.resolve(run, Retry(), step_key="gather#1[0]/pay#1")
    stuck.clear()
    await bench.until_dead(twice, at=stuck)
    async with bench.worker(twice) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        await bench.client.approve(run, "boss")
        while (await bench.states(run))["gather#1[1]/boss#1"] != ["succeeded"]:
            await asyncio.sleep(0.001)
        hold.set()
        await executing
    assert bench.effects == ["pay", "pay"]
    assert (await bench.client.explain(run)).state == "needs_review"


async def test_a_word_given_while_the_run_is_still_in_memory_is_heard_there(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=False, stuck=stuck)
    run = await bench.client.start(flow)
    await bench.until_dead(flow, at=stuck)
    async with Worker(bench.stores, [flow], telemetry=False) as worker:
        while (await bench.states(run)).get("pay#1") != ["orphaned"]:
            await asyncio.sleep(0.001)
        with contextlib.suppress(InvalidTransitionError):
            await bench.client.resolve(run, bench.client.happened("receipt 7"), step_key="pay#1")
        for _ in range(40):
            bench.clock.advance(100)
            await asyncio.sleep(0.002)
            if (await bench.client.explain(run)).state == "needs_review":
                await bench.client.resolve(run, bench.client.happened("receipt 7"), step_key="pay#1")
        while worker.dispatcher.in_hand:
            await asyncio.sleep(0.001)
    assert await run.result() == "receipt 7"
    assert bench.counted()["pay"] == 1


@case(95)
async def test_a_run_whose_owner_died_is_untouched_while_its_heartbeat_is_fresh(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=True, stuck=stuck)
    run = await bench.client.start(flow)
    async with bench.worker(flow) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await stuck.wait()
        await vanish(worker)
        await executing
    bench.clock.advance(30_000)
    await bench.execute_due(flow)
    assert (await bench.client.get(run)).status == "running"
    bench.clock.advance(1)
    await bench.execute_due(flow)
    assert await run.result() == "paid"


@case(98)
async def test_what_a_zombie_writes_is_refused(bench):
    stuck, go_on = asyncio.Event(), asyncio.Event()

    @step(idempotent=True)
    async def slow() -> str:
        bench.effects.append("slow")
        if len(bench.effects) == 1:
            stuck.set()
            await go_on.wait()
            return "from the zombie"
        return "from its successor"

    @workflow("zombie")
    async def zombie(ctx: Context) -> str:
        return await ctx.step(slow)

    run = await bench.client.start(zombie)
    async with bench.worker(zombie) as first:
        executing = asyncio.create_task(run_ready(first))
        await stuck.wait()
        bench.clock.advance(30_001)
        await bench.execute_due(zombie)
        go_on.set()
        await executing
    assert await run.result() == "from its successor"
    assert (await bench.client.get(run)).epoch == 2


async def test_a_run_that_kills_its_owners_goes_to_review_after_five(bench):
    stuck = asyncio.Event()

    @step(idempotent=True)
    async def deadly() -> None:
        bench.effects.append("deadly")
        stuck.set()
        await asyncio.Event().wait()

    @workflow("poison")
    async def poison(ctx: Context) -> None:
        await ctx.step(deadly)

    run = await bench.client.start(poison)
    for _ in range(5):
        stuck.clear()
        await bench.until_dead(poison, at=stuck)
    await bench.execute_due(poison)
    explained = await bench.client.explain(run)
    assert (explained.state, len(bench.effects)) == ("needs_review", 5)
    assert "poison" in explained.because
    await bench.client.resolve(run, Retry())
    stuck.clear()
    await bench.until_dead(poison, at=stuck)
    assert len(bench.effects) == 6


@case(100)
async def test_cancelling_a_pending_run_never_runs_its_body(bench):
    @workflow("never")
    async def never(ctx: Context) -> None:
        bench.effects.append("body")

    run = await bench.client.start(never)
    first = await bench.client.cancel(run)
    assert isinstance(first, CancelRequested)
    bench.clock.advance(5)
    assert await bench.client.cancel(run) == AlreadyRequested(first.requested_at_ms)
    await bench.execute_due(never)
    with pytest.raises(RunCancelled):
        await run.result()
    assert bench.effects == []
    assert await bench.client.cancel(run) == Terminal("cancelled")
    with pytest.raises(RunNotFoundError, match="run: there is no run missing"):
        await bench.client.cancel("missing")


@case(100)
async def test_cancelling_a_run_at_a_gate_withdraws_the_question(bench):
    @workflow("asking")
    async def asking(ctx: Context) -> None:
        await ctx.gate("stop", subject=1)

    run = await bench.client.start(asking)
    await bench.execute_due(asking)
    await bench.client.cancel(run)
    await bench.execute_due(asking)
    with pytest.raises(RunCancelled):
        await run.result()
    assert await bench.client.approvals(run) == ()


@case(95, 100)
async def test_a_cancel_request_survives_the_owner_it_was_made_to(bench):
    stuck = asyncio.Event()
    flow = paying(bench, idempotent=True, stuck=stuck)
    run = await bench.client.start(flow)
    async with bench.worker(flow) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await stuck.wait()
        await vanish(worker)
        await executing
    await bench.client.cancel(run)
    bench.clock.advance(30_001)
    await bench.execute_due(flow)
    with pytest.raises(RunCancelled):
        await run.result()
    assert bench.counted() == {"before": 1, "pay": 1}


async def test_a_running_run_is_cancelled_once_what_cannot_be_cut_has_ended(bench):
    begun, end = asyncio.Event(), asyncio.Event()

    @step
    async def pay() -> None:
        begun.set()
        await end.wait()
        bench.effects.append("paid")

    @step(idempotent=True)
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    @workflow("both")
    async def both(ctx: Context) -> None:
        await ctx.gather(lambda c: c.step(pay), lambda c: c.step(wait_for_ever))

    run = await bench.client.start(both)
    async with bench.worker(both) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        await bench.client.cancel(run)
        await worker.dispatcher.keeper.renew()
        assert (await bench.client.get(run)).status == "running"
        end.set()
        await executing
    with pytest.raises(RunCancelled):
        await run.result()
    assert bench.effects == ["paid"]
    assert (await bench.states(run))["gather#1[0]/pay#1"] == ["succeeded"]


async def test_a_cancel_during_the_last_step_is_never_a_silent_success(bench):
    @step(idempotent=True)
    async def last(run_id: str) -> None:
        await bench.client.cancel(run_id)

    @workflow("last")
    async def flow(ctx: Context) -> str:
        await ctx.step(last, ctx.run_id)
        return "done"

    run = await bench.client.start(flow)
    await bench.execute_due(flow)
    with pytest.raises(RunCancelled):
        await run.result()


async def test_a_lease_that_is_not_confirmed_in_time_is_let_go_and_nothing_more_is_written(bench):
    begun = asyncio.Event()

    @step(idempotent=True)
    async def slow() -> None:
        bench.effects.append("slow")
        begun.set()
        await asyncio.Event().wait()

    @workflow("slow")
    async def flow(ctx: Context) -> None:
        await ctx.step(slow)

    run = await bench.client.start(flow)
    async with bench.worker(flow) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        bench.clock.advance(18_999)
        assert worker.dispatcher.keeper.release_lapsed() == 1
        assert worker.dispatcher.in_hand == 1
        bench.clock.advance(1)
        worker.dispatcher.keeper.release_lapsed()
        await executing
        assert worker.dispatcher.in_hand == 0
    assert (await bench.client.get(run)).status == "running"


async def test_a_renewed_lease_is_kept_for_as_long_as_a_step_runs(bench):
    begun, end = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> None:
        bench.effects.append("slow")
        begun.set()
        await end.wait()

    @workflow("slow")
    async def flow(ctx: Context) -> None:
        await ctx.step(slow)

    run = await bench.client.start(flow)
    async with bench.worker(flow) as worker, bench.worker(flow) as rival:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        for _ in range(100):
            bench.clock.advance(1_500)
            await worker.dispatcher.keeper.renew()
            worker.dispatcher.keeper.release_lapsed()
            assert await run_ready(rival) == 0
        end.set()
        await executing
    await run.result()
    assert bench.effects == ["slow"]


async def test_a_leaving_worker_lets_steps_end_and_releases_the_rest(bench):
    begun, end = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> str:
        bench.effects.append("slow")
        begun.set()
        await end.wait()
        return "slow"

    @step
    async def next_one() -> str:
        bench.effects.append("next")
        return "next"

    @workflow("leaving")
    async def leaving(ctx: Context) -> str:
        return await ctx.step(slow) + await ctx.step(next_one)

    run = await bench.client.start(leaving)
    async with Worker(bench.stores, [leaving]) as worker:
        await begun.wait()
        left = asyncio.create_task(worker.leave())
        await asyncio.sleep(0.01)
        assert (await bench.client.get(run)).status == "running"
        end.set()
        await left
    found = await bench.client.get(run)
    assert (found.status, found.waiting and found.waiting.reason) == ("suspended", "released")
    assert bench.effects == ["slow"]
    await bench.execute_due(leaving)
    assert await run.result() == "slownext"
    assert bench.effects == ["slow", "next"]


async def test_a_step_cut_off_at_the_end_of_the_grace_goes_to_review(bench):
    begun = asyncio.Event()

    @step
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    @workflow("leaving")
    async def leaving(ctx: Context) -> None:
        await ctx.step(slow)

    run = await bench.client.start(leaving)
    async with Worker(bench.stores, [leaving], grace=timedelta(seconds=5)) as worker:
        await begun.wait()
        left = asyncio.create_task(worker.leave())
        await asyncio.sleep(0.01)
        bench.clock.advance(5_000)
        await left
    await bench.execute_due(leaving)
    assert (await bench.client.explain(run)).state == "needs_review"


@case(98)
async def test_two_workers_share_a_hundred_runs_and_execute_each_once(bench):
    @step(idempotent=True)
    async def work(number: int) -> int:
        bench.effects.append(number)
        return number

    @workflow("sharing")
    async def sharing(ctx: Context, number: int) -> int:
        return await ctx.step(work, number)

    runs = [await bench.client.start(sharing, number) for number in range(100)]
    async with bench.worker(sharing) as one, bench.worker(sharing) as two:
        await asyncio.gather(run_ready(one), run_ready(two))
    assert [await run.result() for run in runs] == list(range(100))
    assert sorted(bench.effects) == list(range(100))


async def test_a_waiting_run_is_not_garbage_collected(bench):
    import gc

    @workflow("asking")
    async def asking(ctx: Context) -> str:
        return type(await ctx.gate("stop", subject=1)).__name__

    run = await bench.client.start(asking)
    async with bench.worker(asking) as worker:
        await run_ready(worker)
        gc.collect()
        await decide(worker, run)
    assert await run.result() == "Approved"


async def test_a_database_that_cannot_be_reached_for_a_while_fails_no_run(bench, monkeypatch):
    from belay_core.errors import AttemptStoreError

    store = bench.stores.attempts
    record, failures = store.record, iter(range(3))

    async def failing(command):
        if next(failures, None) is not None:
            raise AttemptStoreError("persistence_failed", "record", "database operation failed")
        return await record(command)

    monkeypatch.setattr(store, "record", failing)

    @workflow("patient")
    async def patient(ctx: Context) -> str:
        return await ctx.step(step(name="one", idempotent=True)(lambda: "one"))

    run = await bench.client.start(patient)
    async with Worker(bench.stores, [patient], background=False, telemetry=False) as worker:
        executing = asyncio.create_task(run_ready(worker))
        while not executing.done():
            await asyncio.sleep(0.001)
            bench.clock.advance(100)
        await executing
    assert await run.result() == "one"
