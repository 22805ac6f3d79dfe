"""Several store operations in one transaction: all of it or nothing, once."""

import asyncio
from functools import partial
from typing import Any

import pytest

from belay_core.errors import DatabaseError, RunStoreError, WriterError
from belay_core.ids import RunId
from belay_core.outcomes.runs import Activated, FenceLost, Transitioned
from belay_core.records.attempt import Attempt, AttemptId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.stores import Stores

A = OwnerId("host-a", 7, "nonce-a")
B = OwnerId("host-b", 8, "nonce-b")
PENDING = RunSnapshot(RunStatus.PENDING)
ONE, TWO = RunId("one"), RunId("two")


class Unhappy(Exception):
    """What the function itself raises."""


class Wrapped(Exception):
    """An error of the application around one of a store."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("belay_drivers.sql.database.FIRST_PAUSE", 0.001)


@pytest.fixture
async def stores(belay_each_store):
    async with belay_each_store as stores:
        yield stores


async def exists(stores: Any, run_id: str) -> bool:
    return bool(await stores.runs.lineage(RunId(run_id)))


def busy(*, transient: bool = True) -> RunStoreError:
    """What a store raises where the database asks for another try."""
    failure = DatabaseError("busy", "40001", transient=transient)
    return RunStoreError("persistence_failed", "create", "database operation failed", {"cause": failure})


# All or nothing.


async def test_what_is_done_inside_is_there_afterwards_and_the_answer_is_given_back(stores: Stores):
    async def body(inside):
        await inside.runs.create(ONE, "{}")
        owned = await inside.runs.claim_and_own(ONE, PENDING, A, 0)
        await inside.attempts.put(Attempt(ONE, "d", 1, "running", 1, {"n": 1}), A)
        return owned

    assert await stores.write(body) == Activated()
    assert (await stores.runs.get(ONE)).owner == A
    assert await stores.attempts.get(AttemptId(ONE, "d", 1)) is not None


async def test_an_exception_of_the_function_leaves_nothing_of_it(stores: Stores):
    await stores.runs.create(ONE, "{}")

    async def body(inside):
        await inside.runs.claim_and_own(ONE, PENDING, A, 0)
        await inside.runs.create(TWO, "{}")
        raise Unhappy

    with pytest.raises(Unhappy):
        await stores.write(body)
    assert (await stores.runs.get(ONE)).status is RunStatus.PENDING
    assert not await exists(stores, "two")


async def test_a_failed_operation_leaves_the_rest_of_the_write_usable(stores: Stores):
    await stores.runs.create(ONE, "{}")

    async def body(inside):
        await inside.runs.create(TWO, "{}")
        with pytest.raises(RunStoreError) as failure:
            await inside.runs.create(ONE, "{}")
        assert failure.value.code == "constraint"
        assert await inside.runs.claim_and_own(ONE, PENDING, A, 0) == Activated()

    await stores.write(body)
    assert await exists(stores, "two")
    assert (await stores.runs.get(ONE)).owner == A


async def test_a_constraint_that_is_not_caught_undoes_everything_and_is_not_tried_again(stores: Stores):
    calls = []

    async def body(inside):
        calls.append(1)
        await inside.runs.create(ONE, "{}")
        await inside.runs.create(ONE, "{}")

    with pytest.raises(RunStoreError) as failure:
        await stores.write(body)
    assert (failure.value.code, len(calls)) == ("constraint", 1)
    assert not await exists(stores, "one")


async def test_a_refused_operation_keeps_what_others_wrote(stores: Stores):
    async def body(inside):
        await inside.runs.create(ONE, "{}")
        return await inside.runs.transition_owned(ONE, A, RunStatus.COMPLETED)

    assert await stores.write(body) == FenceLost()
    assert await exists(stores, "one")


# Savepoints.


async def test_a_write_within_a_write_is_rolled_back_alone(stores: Stores):
    async def within(inside):
        await inside.runs.create(TWO, "{}")
        assert await exists(inside, "one")
        raise Unhappy

    async def body(inside):
        await inside.runs.create(ONE, "{}")
        with pytest.raises(Unhappy):
            await inside.write(within)
        assert not await exists(inside, "two")
        await inside.runs.create(RunId("three"), "{}")

    await stores.write(body)
    assert [await exists(stores, name) for name in ("one", "two", "three")] == [True, False, True]


async def test_what_a_write_within_a_write_kept_goes_with_the_outer_one(stores: Stores):
    async def within(inside):
        await inside.runs.create(TWO, "{}")

    async def body(inside):
        await inside.write(within)
        raise Unhappy

    with pytest.raises(Unhappy):
        await stores.write(body)
    assert not await exists(stores, "two")


async def test_a_function_that_opens_a_write_of_its_own_can_be_called_inside_one(stores: Stores):
    async def library(given: Stores, run_id: str):
        async def body(inside):
            await inside.runs.create(RunId(run_id), "{}")
            if run_id == "two":
                raise Unhappy

        await given.write(body)

    async def body(_inside):
        await library(stores, "one")
        with pytest.raises(Unhappy):
            await library(stores, "two")

    await stores.write(body)
    assert [await exists(stores, name) for name in ("one", "two")] == [True, False]


async def test_operations_side_by_side_inside_take_turns(stores: Stores):
    async def within(inside):
        await inside.runs.create(RunId("w1"), "{}")
        await inside.runs.create(RunId("w2"), "{}")
        raise Unhappy

    async def body(inside):
        return await asyncio.gather(
            inside.runs.create(ONE, "{}"), inside.write(within), inside.runs.create(TWO, "{}"), return_exceptions=True
        )

    answers = await stores.write(body)
    assert [type(answer) for answer in answers] == [type(None), Unhappy, type(None)]
    assert [await exists(stores, name) for name in ("one", "two", "w1", "w2")] == [True, True, False, False]


# Where a call is made.


async def test_the_stores_outside_are_refused_inside_at_once(stores: Stores):
    async def body(inside):
        await inside.runs.create(ONE, "{}")
        for call in (
            lambda: stores.runs.get(ONE),
            lambda: stores.runs.create(TWO, "{}"),
            lambda: stores.runs.heartbeat(ONE, A, 0),
            lambda: stores.attempts.get(AttemptId(ONE, "d", 1)),
            lambda: stores.engine.find_run(ONE),
        ):
            with pytest.raises(WriterError) as failure:
                await asyncio.wait_for(call(), 1)
            assert failure.value.code == "inside"

    await stores.write(body)
    # Once it is over they are as ever.
    assert (await stores.runs.get(ONE)).status is RunStatus.PENDING


async def test_the_outer_level_is_refused_inside_the_inner_one(stores: Stores):
    async def body(outer):
        async def within(_inner):
            with pytest.raises(WriterError) as failure:
                await asyncio.wait_for(outer.runs.create(ONE, "{}"), 1)
            assert failure.value.code == "inside"

        await outer.write(within)
        await outer.runs.create(TWO, "{}")

    await stores.write(body)
    assert await exists(stores, "two")


async def test_a_transaction_is_over_with_its_function(stores: Stores):
    kept: list[Any] = []

    async def body(inside):
        kept.append(inside)

    await stores.write(body)
    with pytest.raises(WriterError) as failure:
        await kept[0].runs.create(ONE, "{}")
    assert failure.value.code == "ended"
    with pytest.raises(WriterError):
        await kept[0].write(body)
    assert not await exists(stores, "one")


async def test_a_task_that_outlives_the_write_it_was_started_in_uses_the_stores_like_anybody(stores: Stores):
    ended = asyncio.Event()

    async def later():
        await ended.wait()
        await stores.runs.create(ONE, "{}")

    async def body(_inside):
        return asyncio.ensure_future(later())

    task = await stores.write(body)
    ended.set()
    await task
    assert await exists(stores, "one")


async def test_what_the_function_leaves_undone_is_refused_and_not_half_kept(stores: Stores):
    begun = asyncio.Event()

    async def within(deeper):
        await deeper.runs.create(ONE, "{}")
        begun.set()
        await asyncio.sleep(0.05)
        await deeper.runs.create(TWO, "{}")

    async def body(inside):
        left = [asyncio.ensure_future(inside.write(within))]
        await begun.wait()
        left.append(asyncio.ensure_future(inside.runs.create(RunId("three"), "{}")))
        await asyncio.sleep(0)
        return left

    left = await stores.write(body)
    answers = await asyncio.gather(*left, return_exceptions=True)
    assert [getattr(answer, "code", answer) for answer in answers] == ["ended", "ended"]
    assert [await exists(stores, name) for name in ("one", "two", "three")] == [False] * 3


async def test_two_databases_do_not_mind_each_other(stores: Stores, belay_stores):
    async with belay_stores as other:

        async def body(inside):
            await inside.runs.create(ONE, "{}")
            await other.runs.create(TWO, "{}")

            async def there(beyond):
                await beyond.runs.create(RunId("three"), "{}")
                await inside.runs.create(RunId("four"), "{}")

            await other.write(there)

        await stores.write(body)
        assert [await exists(stores, name) for name in ("one", "two", "four")] == [True, False, True]
        assert [await exists(other, name) for name in ("one", "two", "three")] == [False, True, True]


# Repeating.


async def test_the_whole_function_is_repeated_when_the_database_asks_for_it(stores: Stores):
    calls = []

    async def body(inside):
        calls.append(await exists(inside, "one"))
        await inside.runs.create(ONE, "{}")
        if len(calls) < 3:
            raise Wrapped from busy()
        return len(calls)

    assert await stores.write(body) == 3
    assert calls == [False, False, False]
    assert await exists(stores, "one")


@pytest.mark.parametrize(
    ("raised", "calls"),
    [
        (busy(), 10),
        (busy(transient=False), 1),
        (Unhappy(), 1),
        (ExceptionGroup("", [busy(), ExceptionGroup("", [busy()])]), 10),
        (ExceptionGroup("", [busy(), Unhappy()]), 1),
    ],
    ids=["busy", "not transient", "own", "together", "mixed"],
)
async def test_ten_attempts_and_only_for_what_may_go_better(stores: Stores, raised, calls):
    made = []

    async def body(inside):
        made.append(1)
        await inside.runs.create(ONE, "{}")
        raise raised

    with pytest.raises(type(raised)) as failure:
        await stores.write(body)
    assert failure.value is raised
    assert len(made) == calls
    assert not await exists(stores, "one")


async def test_a_chain_of_causes_that_bites_its_tail_is_no_trap(stores: Stores):
    one, other = Wrapped(), Unhappy()
    one.__cause__, other.__cause__ = other, one

    async def body(_inside):
        raise one

    with pytest.raises(Wrapped):
        await asyncio.wait_for(stores.write(body), 5)


async def test_a_failure_that_was_dealt_with_is_no_reason_to_repeat(stores: Stores):
    calls = []

    async def body(_inside):
        calls.append(1)
        try:
            raise busy()
        except RunStoreError:
            raise Unhappy from None

    with pytest.raises(Unhappy):
        await stores.write(body)
    assert len(calls) == 1


async def test_within_a_write_nothing_is_repeated_but_the_whole(stores: Stores):
    inner, outer = [], []

    async def within(_inside):
        inner.append(1)
        if len(inner) == 1:
            raise busy()

    async def body(inside):
        outer.append(1)
        await inside.write(within)

    await stores.write(body)
    assert (len(inner), len(outer)) == (2, 2)


# The permit.


async def test_writes_queue_and_one_that_is_cancelled_in_the_queue_leaves_the_holder_alone(stores: Stores):
    entered, leave = asyncio.Event(), asyncio.Event()
    order = []

    async def holding(inside):
        entered.set()
        await leave.wait()
        order.append("holder")
        await inside.runs.create(ONE, "{}")

    def named(name):
        async def body(inside):
            order.append(name)
            await inside.runs.create(RunId(name), "{}")

        return body

    holder = asyncio.ensure_future(stores.write(holding))
    await entered.wait()
    queued = [asyncio.ensure_future(stores.write(named(name))) for name in ("a", "b", "c")]
    await asyncio.sleep(0.01)
    queued[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(queued[1], 1)
    leave.set()
    await asyncio.gather(holder, queued[0], queued[2])
    assert order == ["holder", "a", "c"]
    assert [await exists(stores, name) for name in ("one", "a", "b", "c")] == [True, True, False, True]


async def test_the_permit_is_kept_from_the_first_attempt_to_the_last(stores: Stores):
    order = []

    async def stubborn(_inside):
        order.append("stubborn")
        await asyncio.sleep(0)
        if len(order) < 4:
            raise busy()

    async def other(_inside):
        order.append("other")

    await asyncio.gather(stores.write(stubborn), stores.write(other))
    assert order == ["stubborn"] * 4 + ["other"]


# Cancellation.


async def test_a_function_that_is_cancelled_leaves_nothing_and_the_next_write_works(stores: Stores):
    entered = asyncio.Event()

    async def body(inside):
        await inside.runs.create(ONE, "{}")
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(stores.write(body))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await exists(stores, "one")
    await stores.write(lambda inside: inside.runs.create(ONE, "{}"))
    assert await exists(stores, "one")


class Cut:
    """Work that is cancelled at its n-th suspension, and at the next ones, so often as told."""

    def __init__(self, work, at, times):
        self.work, self.cuts = work, range(at, at + times)
        self.seen = 0

    def __await__(self):
        steps = self.work.__await__()
        step = partial(steps.send, None)
        while True:
            try:
                waited = step()
            except StopIteration as ended:
                return ended.value
            self.seen += 1
            if self.seen in self.cuts:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield waited
                step = partial(steps.send, None)
            except BaseException as error:  # noqa: BLE001  handed on
                step = partial(steps.throw, error)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_wherever_it_is_cancelled_it_happened_wholly_or_not_at_all(stores: Stores, times):
    hooks, cut = [], 0
    for place in range(1, 200):
        one, two = RunId(f"one-{place}"), RunId(f"two-{place}")

        async def within(inside, two=two):
            await inside.runs.create(two, "{}")

        async def body(inside, one=one, place=place):
            await inside.runs.create(one, "{}")
            inside.after_commit(lambda: hooks.append(place))
            await inside.write(within)

        async def cutting(work):
            return await work

        work = Cut(stores.write(body), place, times)
        [answer] = await asyncio.wait_for(asyncio.gather(cutting(work), return_exceptions=True), 10)
        found = [await exists(stores, one), await exists(stores, two), place in hooks]
        assert found in ([True] * 3, [False] * 3)
        if place > work.seen:
            assert (answer, found) == (None, [True] * 3)
            break
        assert isinstance(answer, asyncio.CancelledError)
        cut += 1
    assert 5 < cut < 199


async def test_a_timeout_inside_cuts_one_level_only(stores: Stores):
    async def within(inside):
        await inside.runs.create(TWO, "{}")
        await asyncio.Event().wait()

    async def body(inside):
        await inside.runs.create(ONE, "{}")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(inside.write(within), 0.05)
        assert not await exists(inside, "two")
        await inside.runs.create(RunId("three"), "{}")

    await stores.write(body)
    assert [await exists(stores, name) for name in ("one", "two", "three")] == [True, False, True]


# After the commit.


async def test_hooks_run_once_after_the_commit(stores: Stores):
    ran: list[Any] = []

    async def within(inside):
        assert inside.after_commit(lambda: ran.append("within")) is True

    async def body(inside):
        await inside.runs.create(ONE, "{}")
        assert inside.after_commit(lambda: ran.append("first")) is True
        assert stores.after_commit(lambda: ran.append("found by its place")) is True
        await inside.write(within)
        assert ran == []
        return inside

    inside = await stores.write(body)
    assert ran == ["first", "found by its place", "within"]
    assert inside.after_commit(lambda: ran.append("late")) is False
    assert stores.after_commit(lambda: ran.append("outside")) is False
    assert len(ran) == 3


async def test_what_is_rolled_back_or_repeated_takes_its_hooks_along(stores: Stores):
    ran: list[Any] = []
    attempts = []

    async def within(inside):
        inside.after_commit(lambda: ran.append("rolled back"))
        raise Unhappy

    async def body(inside):
        attempts.append(1)
        number = len(attempts)
        inside.after_commit(lambda: ran.append(number))
        with pytest.raises(Unhappy):
            await inside.write(within)
        if len(attempts) < 3:
            raise busy()

    await stores.write(body)
    assert ran == [3]

    async def failing(inside):
        inside.after_commit(lambda: ran.append("never"))
        raise Unhappy

    with pytest.raises(Unhappy):
        await stores.write(failing)
    assert ran == [3]


async def test_a_hook_that_fails_keeps_no_other_from_running_and_undoes_nothing(stores: Stores, caplog):
    ran, attempts = [], []

    def fail():
        raise RuntimeError("4711-is-a-secret")

    async def body(inside):
        attempts.append(1)
        await inside.runs.create(ONE, "{}")
        for hook in (lambda: ran.append(1), fail, lambda: ran.append(2)):
            inside.after_commit(hook)

    await stores.write(body)
    assert (ran, len(attempts)) == ([1, 2], 1)
    assert await exists(stores, "one")
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


# What is seen by whom.


async def test_an_open_write_is_seen_from_inside_and_not_from_another_opening(shared_store):
    async with shared_store as stores, shared_store as other:

        async def body(inside):
            await inside.runs.create(ONE, "{}")
            assert await exists(inside, "one")
            assert not await exists(other, "one")

        await stores.write(body)
        assert await exists(other, "one")


async def test_a_transition_inside_is_one_for_everybody_only_when_it_committed(shared_store):
    async with shared_store as stores, shared_store as other:
        await stores.runs.create(ONE, "{}")
        await stores.runs.claim_and_own(ONE, PENDING, A, 0)

        async def body(inside):
            assert await inside.runs.transition_owned(ONE, A, RunStatus.COMPLETED) == Transitioned()
            assert (await other.runs.get(ONE)).status is RunStatus.RUNNING

        await stores.write(body)
        assert (await other.runs.get(ONE)).status is RunStatus.COMPLETED
