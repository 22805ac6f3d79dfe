"""Gates: asked once, decided once, bound to what was shown, and never asked again."""

import asyncio
import itertools
from dataclasses import dataclass
from datetime import timedelta

import pytest

from belay_core import (
    Approved,
    Context,
    InvalidInput,
    InvalidTransitionError,
    Lapsed,
    NotNeeded,
    Rejected,
    RunFailed,
    RunNotFoundError,
    step,
    workflow,
)
from belay_core.stores.approvals import AlreadyDecided, Decided, SubjectChanged, TooLate
from belay_testing.drive import decide, run_ready


@dataclass(frozen=True)
class Payment:
    to: str
    cents: int


def answering(bench, **rules):
    @workflow("paying")
    async def paying(ctx: Context, payment: Payment) -> str:
        bench.effects.append("body")
        answer = await ctx.gate("manager", subject=payment, **rules)
        match answer:
            case Approved(subject=what, by=who, edited=edited):
                return f"{what.to} {what.cents} {who} {edited}"
            case Rejected(by=who, reason=why):
                return f"rejected by {who}: {why}"
            case Lapsed():
                return "lapsed"
            case NotNeeded(subject=what):
                return f"not needed {what.cents}"

    return paying


async def test_an_approval_lets_the_run_go_on_with_what_was_shown(bench):
    paying = answering(bench)
    run = await bench.client.start(paying, Payment("bob", 100))
    await bench.execute_due(paying)
    explained = await bench.client.explain(run)
    assert explained.state == "approval"
    (approval,) = await bench.client.approvals(run)
    assert approval.subject == '{"to":"bob","cents":100}'
    async with bench.worker(paying) as worker:
        await decide(worker, run, "manager", by="alice")
    assert await run.result() == "bob 100 alice False"
    assert await bench.client.approvals(run) == ()


async def test_an_edited_approval_goes_on_with_what_the_approver_wrote(bench):
    paying = answering(bench)
    run = await bench.client.start(paying, Payment("bob", 100))
    await bench.execute_due(paying)
    async with bench.worker(paying) as worker:
        await decide(worker, run, by="alice", edited=Payment("bob", 50))
    assert await run.result() == "bob 50 alice True"


async def test_a_rejection_is_an_answer_with_a_name_and_a_reason(bench):
    paying = answering(bench)
    run = await bench.client.start(paying, Payment("bob", 100))
    await bench.execute_due(paying)
    async with bench.worker(paying) as worker:
        await decide(worker, run, decision="rejected", by="alice", reason="too much")
    assert await run.result() == "rejected by alice: too much"


async def test_a_gate_lapses_at_its_moment_and_not_before(bench):
    paying = answering(bench, lapse_after=timedelta(hours=1))
    run = await bench.client.start(paying, Payment("bob", 100))
    await bench.execute_due(paying)
    bench.clock.advance(timedelta(hours=1) - timedelta(milliseconds=1))
    await bench.execute_due(paying)
    assert (await bench.client.get(run)).status == "suspended"
    bench.clock.advance(1)
    (approval,) = await bench.client.approvals(run)
    assert await bench.client.decide(approval, "approved") == TooLate()
    await bench.execute_due(paying)
    assert await run.result() == "lapsed"


async def test_a_condition_that_says_no_asks_nobody_and_is_never_judged_again(bench):
    judged = []
    stuck = asyncio.Event()

    @workflow("conditional")
    async def conditional(ctx: Context, payment: Payment) -> int:
        def high(subject: Payment) -> bool:
            judged.append(subject.cents)
            return subject.cents > 1000

        answer = await ctx.gate("manager", subject=payment, when=high)
        if not stuck.is_set():

            async def hang() -> None:
                stuck.set()
                await asyncio.Event().wait()

            await ctx.step(step(idempotent=True)(hang))
        assert isinstance(answer, NotNeeded)
        return answer.subject.cents

    run = await bench.client.start(conditional, Payment("bob", 1))
    await bench.until_dead(conditional, at=stuck)
    await bench.execute_due(conditional)
    assert await run.result() == 1
    assert judged == [1]
    assert (await bench.states(run))["manager#1"] == ["skipped"]


async def test_a_condition_that_raises_fails_the_gate_and_asks_nobody(bench):
    def broken(subject):
        raise LookupError("no limit")

    paying = answering(bench, when=broken)
    run = await bench.client.start(paying, Payment("bob", 1))
    await bench.execute_due(paying)
    with pytest.raises(RunFailed, match="LookupError: no limit"):
        await run.result()
    assert await bench.client.approvals(run) == ()


async def test_of_many_decisions_one_counts_and_the_others_get_that_one(bench):
    paying = answering(bench)
    run = await bench.client.start(paying, Payment("bob", 100))
    await bench.execute_due(paying)
    (approval,) = await bench.client.approvals(run)
    verdicts = itertools.cycle(["approved", "rejected"])
    answers = await asyncio.gather(
        *(bench.client.decide(approval, next(verdicts), by=f"person {number}") for number in range(20))
    )
    decided = [index for index, answer in enumerate(answers) if isinstance(answer, Decided)]
    assert len(decided) == 1
    winner = f"person {decided[0]}"
    assert {answer.decided_by for answer in answers if isinstance(answer, AlreadyDecided)} == {winner}
    assert len([answer for answer in answers if isinstance(answer, AlreadyDecided)]) == 19


async def test_a_decision_on_something_else_than_was_shown_does_not_count(bench):
    paying = answering(bench)
    run = await bench.client.start(paying, Payment("bob", 100))
    await bench.execute_due(paying)
    assert await bench.client.approve(run, digest="0" * 64) == SubjectChanged()
    assert len(await bench.client.approvals(run)) == 1


async def test_deciding_needs_a_name_and_a_run_that_waits(bench):
    paying = answering(bench)
    run = await bench.client.start(paying, Payment("bob", 100))
    with pytest.raises(InvalidTransitionError, match="waits for no such decision; its state is pending"):
        await bench.client.approve(run)
    with pytest.raises(RunNotFoundError, match="run: there is no run nope"):
        await bench.client.approve("nope")
    async with bench.worker(paying) as worker:
        await run_ready(worker)
        with pytest.raises(InvalidInput, match="by: must name who decides"):
            await worker.client.approve(run)


async def test_twenty_gates_in_a_row_ask_twenty_times_and_repeat_no_step(bench):
    async def count(number: int) -> None:
        bench.effects.append(number)

    @workflow("looping")
    async def looping(ctx: Context) -> int:
        for number in range(20):
            await ctx.step(count, number)
            await ctx.gate("next", subject=number)
        return 20

    run = await bench.client.start(looping)
    async with bench.worker(looping) as worker:
        await run_ready(worker)
        for _ in range(20):
            await decide(worker, run)
    assert await run.result() == 20
    assert bench.effects == list(range(20))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_parallel_gates_are_decided_in_any_order_and_each_answer_reaches_its_own(bench, order):
    async def ask(ctx: Context, number: int) -> str:
        answer = await ctx.gate("item", subject=number)
        return f"{number}:{type(answer).__name__}"

    @workflow("parallel")
    async def parallel(ctx: Context) -> list[str]:
        return await ctx.map(ask, range(3))

    run = await bench.client.start(parallel)
    async with bench.worker(parallel) as worker:
        await run_ready(worker)
        asked = {approval.subject: approval for approval in await bench.client.approvals(run)}
        assert sorted(asked) == ["0", "1", "2"]
        for number in order:
            verdict = "rejected" if number == 1 else "approved"
            assert isinstance(await bench.client.decide(asked[str(number)], verdict), Decided)
            await run_ready(worker)
    assert await run.result() == ["0:Approved", "1:Rejected", "2:Approved"]


async def test_a_gate_its_author_gives_up_can_no_longer_be_approved(bench):
    @workflow("impatient")
    async def impatient(ctx: Context) -> str:
        task = asyncio.create_task(ctx.gate("slow", subject=1))
        done, _ = await asyncio.wait({task, asyncio.create_task(ctx.step(quick))}, return_when=asyncio.FIRST_COMPLETED)
        assert task not in done
        task.cancel()
        await asyncio.wait({task})
        return "gave up"

    async def quick() -> None:
        while not bench.asked:
            bench.asked = await bench.client.approvals()
            await asyncio.sleep(0.001)

    bench.asked = ()
    run = await bench.client.start(impatient)
    await bench.execute_due(impatient)
    assert await run.result() == "gave up"
    (approval,) = bench.asked
    assert await bench.client.decide(approval, "approved") == TooLate()
    assert (await bench.states(run))["slow#1"] == ["cancelled"]


async def test_a_crash_at_the_gate_leaves_one_question(bench):
    stuck = asyncio.Event()

    @step(idempotent=True)
    async def hang() -> None:
        while not await bench.client.approvals():
            await asyncio.sleep(0.001)
        bench.effects.append("hang")
        if len(bench.effects) < 3:
            stuck.set()
            await asyncio.Event().wait()

    @workflow("asking")
    async def asking(ctx: Context) -> str:
        task = asyncio.create_task(ctx.gate("one", subject="x"))
        await ctx.step(hang)
        return str(await task)

    run = await bench.client.start(asking)
    for _ in range(2):
        stuck.clear()
        await bench.until_dead(asking, at=stuck)
    await bench.execute_due(asking)
    assert len(await bench.client.approvals(run)) == 1
    async with bench.worker(asking) as worker:
        await decide(worker, run)
    assert (await run.result()).startswith("Approved")


@pytest.mark.parametrize(
    ("rules", "parameter"),
    [({"lapse_after": timedelta(0)}, "lapse_after"), ({"lapse_after": 5}, "lapse_after")],
)
async def test_a_gate_with_a_bad_rule_fails_the_run_by_name(bench, rules, parameter):
    paying = answering(bench, **rules)
    run = await bench.client.start(paying, Payment("bob", 1))
    await bench.execute_due(paying)
    with pytest.raises(RunFailed, match=f"{parameter}: must be a positive timedelta"):
        await run.result()
