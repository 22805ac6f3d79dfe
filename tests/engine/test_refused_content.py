"""A write that the database refuses for what it holds: it is not sent again, and the run ends or is seen."""

import asyncio
from datetime import timedelta

import pytest

from belay_core import Context, RunFailed, StepContext, StepFailed, Worker, Workflow, step, workflow
from belay_core.errors import AttemptStoreError, DatabaseError, RunStoreError
from belay_testing.drive import run_ready
from belay_testing.faults import Fault, FaultStores


def refusal(error) -> Fault:
    async def refuse(_store, method):
        cause = DatabaseError("content", "22P05")
        raise error("persistence_failed", method, "database operation failed", {"category": "content", "cause": cause})

    return Fault("refused", before=True, strike=refuse)


def acting(form: str, effects: list, *, idempotent: bool):
    if form == "function":

        @step(idempotent=idempotent, retries=3)
        def act() -> str:
            effects.append("act")
            return "odd"

        @workflow("acting")
        async def function(ctx: Context) -> str:
            return await ctx.step(act)

        return function

    class Acting(Workflow[None, str]):
        workflow_name = "acting"

        @step(idempotent=idempotent, retries=3)
        def act(self, ctx: StepContext[None]) -> str:
            effects.append("act")
            return "odd"

    return Acting


async def refused_at(bench, flow, of: str, at: int, error) -> None:
    faulty = FaultStores(bench.stores, at=at, of=of, fault=refusal(error))
    async with bench.worker_over(faulty, flow) as worker:
        await run_ready(worker)
        assert faulty.struck


@pytest.mark.parametrize("form", ["function", "class"])
async def test_a_result_of_an_idempotent_step_fails_it_for_good(bench, form):
    flow = acting(form, bench.effects, idempotent=True)
    run = await bench.client.start(flow)
    await refused_at(bench, flow, "record", 1, AttemptStoreError)
    with pytest.raises(
        RunFailed, match=r"ValueRefused: the database refuses it: persistence_failed \(content \(22P05\)"
    ):
        await run.result()
    assert bench.effects == ["act"]


@pytest.mark.parametrize("form", ["function", "class"])
async def test_a_result_of_another_step_goes_to_review(bench, form):
    flow = acting(form, bench.effects, idempotent=False)
    run = await bench.client.start(flow)
    await refused_at(bench, flow, "record", 2, AttemptStoreError)
    explained = await bench.client.explain(run)
    assert explained.state == "needs_review"
    assert "it took place, and its result cannot be kept: ValueRefused: the database refuses it" in explained.because
    assert bench.effects == ["act"]


@pytest.mark.parametrize("form", ["function", "class"])
async def test_a_result_of_a_run_fails_it(bench, form):
    flow = acting(form, bench.effects, idempotent=True)
    run = await bench.client.start(flow)
    await refused_at(bench, flow, "settle", 1, RunStoreError)
    with pytest.raises(RunFailed, match="ValueRefused: result: the database refuses it"):
        await run.result()


async def test_the_text_of_a_runs_error_is_given_up_for_its_end(bench):
    @workflow("failing")
    async def failing(ctx: Context) -> None:
        raise LookupError("odd")

    run = await bench.client.start(failing)
    await refused_at(bench, failing, "settle", 1, RunStoreError)
    with pytest.raises(RunFailed, match="ValueRefused: error: the database refuses it"):
        await run.result()


@pytest.mark.parametrize(("of", "error"), [("ask", AttemptStoreError), ("sleep", AttemptStoreError)])
async def test_any_other_write_goes_to_review(bench, of, error, caplog):
    @workflow("waiting")
    async def waiting(ctx: Context) -> None:
        if of == "ask":
            await ctx.gate("go", subject="odd")
        else:
            await ctx.sleep(timedelta(hours=1))

    run = await bench.client.start(waiting)
    await refused_at(bench, waiting, of, 1, error)
    explained = await bench.client.explain(run)
    assert (explained.state, "a write was refused" in explained.because) == ("needs_review", True)
    assert "waits for an operator" in caplog.text


TRIGGER = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.outcome LIKE '%odd%' THEN RAISE EXCEPTION 'refused' USING ERRCODE = '22P05'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON belay_attempts FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.mark.parametrize("idempotent", [True, False])
async def test_what_postgresql_refuses_is_not_sent_for_ever(belay_postgres, idempotent):
    import asyncpg

    effects: list[str] = []
    flow = acting("function", effects, idempotent=idempotent)
    async with belay_postgres as stores:
        connection = await asyncpg.connect(belay_postgres.url.replace("postgresql+asyncpg", "postgresql"))
        await connection.execute(TRIGGER)
        await connection.close()
        async with Worker(stores, [flow], telemetry=False, background=False) as worker:
            runs = await asyncio.gather(*(worker.client.start(flow) for _ in range(20)))
            await run_ready(worker)
            ended = await asyncio.gather(*(run.settled(timedelta(0)) for run in runs))
    kinds = {type(each).__name__ for each in ended}
    assert (kinds, len(effects)) == ({"Ended" if idempotent else "Waiting"}, 20)


async def test_a_refused_step_may_be_handled_by_its_workflow(bench):
    @step(idempotent=True)
    def act() -> str:
        return "odd"

    @workflow("handling")
    async def handling(ctx: Context) -> str:
        try:
            return await ctx.step(act)
        except StepFailed as failed:
            return failed.type

    run = await bench.client.start(handling)
    await refused_at(bench, handling, "record", 1, AttemptStoreError)
    assert await run.result() == "ValueRefused"
