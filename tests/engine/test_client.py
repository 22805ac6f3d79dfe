"""Starting, finding, listing, explaining: what a client may count on."""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from belay_core import Client, Context, Happened, InvalidInput, RunFailed, RunNotFoundError, Worker, step, workflow
from belay_core.clock import reading, utc_text
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import RunEnd
from belay_drivers.sqlite import open_sqlite
from belay_testing.drive import run_ready, vanish
from belay_testing.faults import FaultStores


@dataclass(frozen=True)
class Given:
    name: str
    count: int


@workflow("greeting")
async def greeting(ctx: Context, given: Given) -> str:
    return given.name * given.count


@workflow("dated")
async def dated(ctx: Context, given: datetime) -> datetime:
    return given


@workflow("other")
async def other(ctx: Context) -> None: ...


@workflow("failing")
async def failing(ctx: Context) -> None:
    raise ValueError("broken")


async def test_the_same_key_gives_the_same_run_untouched(bench):
    first = await bench.client.start(greeting, Given("a", 2), idempotency_key="k")
    again = await bench.client.start(greeting, Given("b", 9), idempotency_key="k")
    assert (first.created, again.created) == (True, False)
    assert again.run_id == first.run_id
    await bench.execute_due(greeting)
    assert await again.result() == "aa"


@pytest.mark.parametrize("given", ["no Given", Given("a", object()), None])
async def test_a_known_key_gives_its_run_before_anything_of_the_input_is_judged(bench, given):
    with pytest.raises(InvalidInput, match="input"):
        await bench.client.start(greeting, given, idempotency_key="k")
    first = await bench.client.start(greeting, Given("a", 2), idempotency_key="k")
    again = await bench.client.start(greeting, given, idempotency_key="k")
    assert (again.run_id, again.created) == (first.run_id, False)
    await bench.execute_due(greeting)
    assert await again.result() == "aa"


async def test_a_key_may_be_bound_to_one_input(bench):
    bound = {"idempotency_key": "k", "on_conflict": "same_input"}
    first = await bench.client.start(greeting, Given("a", 2), **bound)
    assert (await bench.client.start(greeting, Given("a", 2), **bound)).run_id == first.run_id
    with pytest.raises(InvalidInput, match=f"idempotency_key: belongs to run {first.run_id}, .* another input") as why:
        await bench.client.start(greeting, Given("secret", 2), **bound)
    assert "secret" not in str(why.value)
    with pytest.raises(InvalidInput, match="input"):
        await bench.client.start(greeting, "no Given", **bound)
    with pytest.raises(InvalidInput, match="on_conflict: must be one of return, same_input"):
        await bench.client.start(greeting, Given("a", 2), idempotency_key="k", on_conflict="fail")


async def test_a_workflow_is_started_by_its_name_and_found_by_its_key(bench):
    run = await bench.client.start("greeting", {"name": "a", "count": 3}, idempotency_key="k")
    assert await bench.client.find("other") is None
    found = await bench.client.find("k", greeting)
    assert (found.run_id, found.created) == (run.run_id, False)
    with pytest.raises(InvalidInput, match=f"idempotency_key: belongs to run {run.run_id} of workflow greeting"):
        await bench.client.find("k", other)
    await bench.execute_due(greeting)
    assert await run.result() == await found.result() == "aaa"
    with pytest.raises(InvalidInput, match=r"input: .*by its name takes plain JSON"):
        await bench.client.start("greeting", Given("a", 3))


async def test_a_handle_of_a_known_run_has_the_type_of_its_workflow(bench):
    run = await bench.client.start(dated, datetime(2031, 1, 2, tzinfo=UTC))
    await bench.execute_due(dated)
    assert await bench.client.handle(run.run_id, dated).result() == datetime(2031, 1, 2, tzinfo=UTC)
    assert await bench.client.handle(run.run_id).result() == "2031-01-02T00:00:00Z"
    with pytest.raises(RunNotFoundError):
        await bench.client.handle("nope", dated).result()


async def test_all_treat_a_run_that_does_not_exist_alike(bench):
    client = bench.client
    for ask in (client.get, client.history, client.explain, client.cancel, client.approve, client.reject):
        with pytest.raises(RunNotFoundError, match=r"^run: there is no run nope$"):
            await ask("nope")
    with pytest.raises(RunNotFoundError, match=r"^run: there is no run nope$"):
        await client.resolve("nope", Happened("null"))
    with pytest.raises(RunNotFoundError, match=r"^run: there is no run nope$"):
        await client.result("nope")


async def test_the_end_of_a_run_of_this_process_is_notified_and_an_earlier_one_is_read(belay_clock):
    # Where a relay connects meanwhile, everybody looks once more.
    async with open_sqlite(":memory:", clock=belay_clock) as stores:
        seen = FaultStores(stores)
        client = Client(seen.stores, telemetry=False)

        def looks() -> int:
            return seen.calls.count("find")

        async with Worker(stores, [greeting, failing], telemetry=False):
            run = await client.start(greeting, Given("a", 2))
            assert (await run.result(), looks()) == ("aa", 0)
            assert (await run.result(), looks()) == ("aa", 1)
            later = await client.start(greeting, Given("b", 2))
            assert (await client.result(later.run_id), looks()) == ("bb", 2)
            run = await client.start(failing)
            reported, read = await failure_of(run), await failure_of(run)
            assert looks() == 3
            assert (reported.type, reported.message) == (read.type, read.message) == ("ValueError", "broken")


async def failure_of(run):
    with pytest.raises(RunFailed) as failed:
        await run.result()
    return failed.value


async def test_a_refused_argument_leaves_no_call_behind(bench):
    @workflow("refusing")
    async def refusing(ctx: Context) -> int:
        with pytest.raises(InvalidInput, match="arguments"):
            await ctx.step(taking, object())
        return ctx._scope.unopened

    @step(idempotent=True)
    async def taking(what: object) -> None: ...

    run = await bench.client.start(refusing)
    await bench.execute_due(refusing)
    assert await run.result() == 0


async def test_a_notified_end_counts_where_the_run_is_deleted_before_it_is_read(belay_clock):
    async with open_sqlite(":memory:", clock=belay_clock) as stores:

        class Deleted:
            async def find(self, run_id):
                stores.notifier.notify(run_id, end=RunEnd(RunStatus.COMPLETED, "7"))

        assert await Client(replace(stores, runs=Deleted()), telemetry=False).result("run") == 7


async def test_twenty_starts_with_one_key_at_once_make_one_run(bench):
    runs = await asyncio.gather(*(bench.client.start(greeting, Given("a", 1), idempotency_key="k") for _ in range(20)))
    assert len({run.run_id for run in runs}) == 1
    assert sum(run.created for run in runs) == 1


async def test_a_key_of_another_workflow_is_refused_and_its_run_untouched(bench):
    first = await bench.client.start(greeting, Given("a", 1), idempotency_key="k")
    with pytest.raises(InvalidInput, match=f"idempotency_key: belongs to run {first.run_id} of workflow greeting"):
        await bench.client.start(other, idempotency_key="k")
    assert len(await bench.client.list()) == 1


async def test_a_run_id_is_found_with_the_same_input_and_refused_with_another(bench):
    first = await bench.client.start(greeting, Given("a", 1), run_id="r-1")
    assert not (await bench.client.start(greeting, Given("a", 1), run_id="r-1")).created
    with pytest.raises(InvalidInput, match="run_id: belongs to a run with another"):
        await bench.client.start(greeting, Given("a", 2), run_id="r-1")
    with pytest.raises(InvalidInput, match="run_id: belongs to a run with another"):
        await bench.client.start(other, run_id="r-1")
    await bench.execute_due(greeting)
    assert await first.result() == "a"


@pytest.mark.parametrize("key", ["", "x" * 513, "a\x00b", "\ud800", 5])
async def test_a_bad_key_is_refused_by_name_and_nothing_is_stored(bench, key):
    with pytest.raises(InvalidInput, match="idempotency_key: must be") as found:
        await bench.client.start(greeting, Given("a", 1), idempotency_key=key)
    assert found.value.parameter == "idempotency_key"
    assert await bench.client.list() == ()


@pytest.mark.parametrize("given", [None, "text", Given("a", "no number"), Given("\ud800", 1)])
async def test_a_wrong_input_is_refused_and_nothing_is_stored(bench, given):
    with pytest.raises(InvalidInput, match="input: workflow greeting: ") as found:
        await bench.client.start(greeting, given)
    assert "no number" not in str(found.value)
    assert await bench.client.list() == ()


@pytest.mark.parametrize(
    ("rules", "parameter"),
    [
        ({"priority": 1.5}, "priority"),
        ({"priority": 2**40}, "priority"),
        ({"run_at": datetime(2026, 1, 1)}, "run_at"),
        ({"run_at": datetime(1969, 1, 1, tzinfo=UTC)}, "run_at"),
        ({"run_id": ""}, "run_id"),
    ],
)
async def test_a_bad_parameter_of_start_is_refused_by_name(bench, rules, parameter):
    with pytest.raises(InvalidInput) as found:
        await bench.client.start(greeting, Given("a", 1), **rules)
    assert found.value.parameter == parameter


async def test_a_run_starts_no_earlier_than_its_moment_and_the_higher_priority_first(bench):
    order = []

    @workflow("ordered")
    async def ordered(ctx: Context, name: str) -> None:
        order.append(name)

    later = datetime.fromtimestamp(bench.clock.now() / 1000, UTC) + timedelta(seconds=60)
    await bench.client.start(ordered, "late", run_at=later, priority=9)
    await bench.client.start(ordered, "low")
    await bench.client.start(ordered, "high", priority=5)
    await bench.execute_due(ordered)
    assert order == ["high", "low"]
    bench.clock.advance(61_000)
    await bench.execute_due(ordered)
    assert order == ["high", "low", "late"]


async def test_runs_are_listed_by_page_newest_first_without_payloads(bench):
    runs = [await bench.client.start(greeting, Given("a", number)) for number in range(5)]
    page = await bench.client.list(limit=2)
    assert [run.run_id for run in page] == [runs[4].run_id, runs[3].run_id]
    rest = await bench.client.list(before=page[-1].run_id)
    assert [run.run_id for run in rest] == [runs[2].run_id, runs[1].run_id, runs[0].run_id]
    assert not hasattr(page[0], "input")
    await bench.execute_due(greeting)
    assert len(await bench.client.list(status=RunStatus.COMPLETED, workflow="greeting")) == 5
    assert await bench.client.list(workflow="other") == ()


@pytest.mark.parametrize(
    ("rules", "parameter"), [({"status": "done"}, "status"), ({"limit": 0}, "limit"), ({"limit": 5000}, "limit")]
)
async def test_a_bad_question_is_refused_by_name(bench, rules, parameter):
    with pytest.raises(InvalidInput) as found:
        await bench.client.list(**rules)
    assert found.value.parameter == parameter


async def test_a_missing_run_is_said_to_be_missing(bench):
    for ask in (bench.client.get, bench.client.explain, bench.client.history, bench.client.result):
        with pytest.raises(RunNotFoundError, match="there is no run missing"):
            await ask("missing")


async def test_a_result_by_id_is_plain_json_or_what_of_says(bench):
    @workflow("making")
    async def making(ctx: Context) -> Given:
        return Given("a", 1)

    run = await bench.client.start(making)
    await bench.execute_due(making)
    assert await bench.client.result(run.run_id) == {"name": "a", "count": 1}
    assert await bench.client.result(run.run_id, of=Given) == Given("a", 1)
    assert await bench.client.result(run) == Given("a", 1)


async def test_a_pending_run_nobody_takes_is_explained(bench):
    run = await bench.client.start(other)
    await bench.execute_due(greeting)
    explained = await bench.client.explain(run)
    assert explained.state == "pending"
    assert "no worker that knows the workflow other" in explained.because
    assert explained.ways_out[0].startswith("belay worker")


@pytest.mark.parametrize(
    ("ask", "parameter"),
    [
        (lambda client: client.approvals(limit=-1), "limit"),
        (lambda client: client.approvals(limit="x"), "limit"),
        (lambda client: client.approvals("\ud800"), "run"),
        (lambda client: client.list(workflow="\ud800"), "workflow"),
        (lambda client: client.list(waiting_for=""), "waiting_for"),
        (lambda client: client.list(before="\x00"), "before"),
        (lambda client: client.get("x" * 1025), "run"),
        (lambda client: client.cancel(5), "run"),
    ],
)
async def test_what_a_client_is_asked_is_admitted_by_name(bench, ask, parameter):
    await bench.client.start(other, run_id="r")
    bench.client.approver = None
    with pytest.raises(InvalidInput) as found:
        await ask(bench.client)
    assert found.value.parameter == parameter


async def test_a_page_after_a_run_that_is_not_there_is_refused(bench):
    with pytest.raises(RunNotFoundError):
        await bench.client.list(before="missing")


async def test_a_long_id_of_the_contract_is_read_like_any_other(bench):
    long = "x" * 1024
    await bench.stores.runs.create(long, "{}")
    assert (await bench.client.get(long)).run_id == long
    assert (await bench.client.explain(long)).because == "it has no workflow, so no worker takes it"


async def test_a_running_run_says_who_has_it_and_when_that_was_last_heard_of(bench):
    begun = asyncio.Event()

    @workflow("hanging")
    async def hanging(ctx: Context) -> None:
        begun.set()
        await asyncio.Event().wait()

    run = await bench.client.start(hanging)
    began = utc_text(reading(bench.clock))
    async with bench.worker(hanging) as worker:
        executing = asyncio.create_task(run_ready(worker))
        await begun.wait()
        bench.clock.advance(timedelta(seconds=20))
        explained = await bench.client.explain(run)
        await vanish(worker)
        await executing
    assert explained.because.startswith("process ")
    assert explained.because.endswith(f" works on it, and was last heard of at {began}")


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000 ms after 1970"),
        (10**18, "1000000000000000000 ms after 1970"),
    ],
)
def test_a_moment_is_written_in_utc_and_one_beyond_the_calendar_as_its_number(at_ms, text):
    assert utc_text(at_ms) == text


async def test_ways_out_are_safe_to_paste_into_a_shell(bench):
    run = await bench.client.start(other, run_id="a; touch pwned")
    explained = await bench.client.explain(run)
    assert explained.ways_out[-1] == "belay cancel 'a; touch pwned'"


@pytest.mark.parametrize(
    ("ask", "parameter"),
    [
        (lambda client, asked: client.decide(asked, "approved", edited_text="{torn"), "edited_text"),
        (lambda client, asked: client.decide(asked, "approved", edited_text="NaN"), "edited_text"),
        (lambda client, asked: client.decide(asked, "approved", edited_text=f'"{"x" * 2**20}"'), "edited_text"),
        (lambda client, asked: client.decide(asked, "approved", edited_text=5), "edited_text"),
        (lambda client, asked: client.decide(asked, "approved", digest=5), "digest"),
        (lambda client, asked: client.decide(asked, "perhaps"), "decision"),
        (lambda client, asked: client.approve(asked.run_id, edited=object()), "edited"),
        (lambda client, asked: client.approve(asked.run_id, reason="x\x00"), "reason"),
        (lambda client, asked: client.resolve(asked.run_id, "retry"), "resolution"),
        (lambda client, asked: client.resolve(asked.run_id, Happened("{torn"), step_key="x#1"), "outcome"),
    ],
)
async def test_what_an_approver_or_an_operator_says_is_admitted_by_name_and_changes_nothing(bench, ask, parameter):
    @workflow("asking")
    async def asking(ctx: Context) -> None:
        await ctx.gate("boss", subject=1)

    run = await bench.client.start(asking)
    await bench.execute_due(asking)
    (asked,) = await bench.client.approvals(run)
    with pytest.raises(InvalidInput) as found:
        await ask(bench.client, asked)
    assert found.value.parameter == parameter
    assert await bench.client.approvals(run) == (asked,)


def test_a_result_an_operator_gives_is_data():
    with pytest.raises(InvalidInput, match="result: a value of type object"):
        Client.happened(object())
