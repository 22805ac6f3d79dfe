"""Writes of one run: one after another, in their order, and together where several wait; none harms its neighbour."""

import asyncio
from dataclasses import replace

import pytest

from belay_core import Context, Worker, step, workflow
from belay_core.engine.lease import WriteQueue
from belay_core.errors import AttemptStoreError
from belay_core.records.commands import Record
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_testing.drive import run_ready

KEYS = [f"work#{number}" for number in range(1, 6)]


class Between:
    """The bench's own store; its first record is held until every other step has its result and waits for its turn."""

    def __init__(self, attempts, refuse=None, first=None):
        self._attempts, self._refuse, self._first = attempts, refuse, first
        self.ended, self.sent = asyncio.Event(), []

    def __getattr__(self, name):
        return getattr(self._attempts, name)

    async def record(self, command: Record):
        self.sent.append([each.step_key for each in command.attempts])
        if len(self.sent) == 1:
            await self.ended.wait()
            await asyncio.sleep(0)
            if self._first is not None:
                await self._first(command.lease)
        if self._refuse in self.sent[-1]:
            raise AttemptStoreError("invalid_record", "record", "a row that no database takes")
        return await self._attempts.record(command)


async def five_at_once(bench, between: Between):
    left = len(KEYS)

    @step(idempotent=True)
    async def work(number: int) -> int:
        nonlocal left
        left -= 1
        if not left:
            between.ended.set()
        return number

    @workflow("five")
    async def five(ctx: Context) -> int:
        return sum(await asyncio.gather(*(ctx.step(work, number) for number in range(5))))

    run = await bench.client.start(five)
    stores = replace(bench.stores, attempts=between)
    async with Worker(stores, [five], telemetry=False, background=False) as worker:
        await run_ready(worker)
    return run


async def test_steps_that_end_during_a_write_are_written_together_in_the_order_of_their_places(bench):
    between = Between(bench.stores.attempts)
    run = await five_at_once(bench, between)
    assert await run.result() == 10
    assert between.sent == [KEYS[:1], KEYS[1:]]
    places = {each.step_key: each.recorded for each in await bench.attempts(run)}
    assert places == {key: place for place, key in enumerate(KEYS, start=1)}


@pytest.mark.parametrize("bad", KEYS[1:])
async def test_a_row_that_the_database_refuses_keeps_none_of_its_neighbours_from_being_written(bench, bad):
    between = Between(bench.stores.attempts, refuse=bad)
    run = await five_at_once(bench, between)
    assert sorted(await bench.states(run)) == sorted({*KEYS} - {bad})
    assert (await bench.client.explain(run)).state == "needs_review"
    assert between.sent == [KEYS[:1], KEYS[1:], *([key] for key in KEYS[1:])]


async def test_a_conflict_of_one_takes_nothing_from_those_before_it(bench):
    other = StepRecord(
        step_key=KEYS[3], attempt=1, step="work", kind=StepKind.STEP, state=StepState.SUCCEEDED, idempotent=True,
        started_at_ms=1, finished_at_ms=1, recorded=9, outcome='"of somebody else"',
    )  # fmt: skip

    async def first(lease) -> None:
        await bench.stores.attempts.record(Record(lease, (other,)))

    between = Between(bench.stores.attempts, first=first)
    run = await five_at_once(bench, between)
    attempts = {each.step_key: each.outcome for each in await bench.attempts(run)}
    assert attempts == {**{key: str(number) for number, key in enumerate(KEYS[:3])}, KEYS[3]: '"of somebody else"'}


def attempt(key: str, size: int = 2) -> tuple[StepRecord]:
    return (
        StepRecord(
            step_key=key, attempt=1, step="work", kind=StepKind.STEP, state=StepState.SUCCEEDED, idempotent=True,
            started_at_ms=1, outcome="x" * size,
        ),
    )  # fmt: skip


async def waiting(turns: WriteQueue, *attempts: tuple[StepRecord, ...]) -> list[asyncio.Future]:
    tasks = [asyncio.ensure_future(turns.wait(each)) for each in attempts]
    await asyncio.sleep(0)
    return tasks


async def test_who_is_cancelled_while_it_waits_is_not_taken_along_and_stops_nobody():
    turns = WriteQueue()
    turns.taken = True
    gone, stays, last = await waiting(turns, attempt("a"), attempt("b"), ())
    gone.cancel()
    await asyncio.wait([gone])
    assert [each.attempts for each in turns.take_along(())] == [attempt("b")]
    turns.pass_on()
    assert await last is None
    assert not stays.done()
    stays.cancel()


async def test_a_turn_that_reaches_somebody_who_was_cancelled_goes_to_the_next():
    turns = WriteQueue()
    turns.taken = True
    gone, after = await waiting(turns, (), ())
    turns.pass_on()
    gone.cancel()
    assert await asyncio.wait_for(after, 1) is None
    turns.pass_on()
    turns.taken = True


async def test_only_so_many_attempts_share_a_command_and_what_is_no_record_shares_none():
    turns = WriteQueue()
    turns.taken = True
    tasks = await waiting(turns, *(attempt(str(number)) for number in range(130)), (), attempt("after"))
    assert len(turns.take_along(attempt("own"))) == 127
    assert len(turns.take_along(attempt("own"))) == 3
    turns.pass_on()
    await tasks[130]
    assert len(turns.take_along(())) == 1
    for task in tasks:
        task.cancel()


async def test_long_texts_share_no_command():
    turns = WriteQueue()
    turns.taken = True
    tasks = await waiting(turns, attempt("long", 200_000), attempt("longer", 200_000))
    assert len(turns.take_along(attempt("own"))) == 1
    assert len(turns.take_along(attempt("own", 100_000))) == 0
    for task in tasks:
        task.cancel()
