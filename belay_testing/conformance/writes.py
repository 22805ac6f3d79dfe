"""Several store operations in one write: atomic, and done once."""

import asyncio
from typing import Any, Final

import pytest

from belay_core.errors import DatabaseError, RunStoreError, WriterError
from belay_core.ids import RunId
from belay_core.records.run import RunStatus
from belay_core.stores.run_contract import Activated, FenceLost
from belay_testing.cancels.awaits import cancel_at
from belay_testing.conformance.auxiliary import exists
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import ID, PENDING, RUNNING, A, R, refused

ONE: Final = RunId("one")
TWO: Final = RunId("two")
THREE: Final = RunId("three")
MOMENT: Final = 0.02
"""Seconds after which a write has reached the queue."""
MOST: Final = 500
"""Upper bound of the rounds that a write waits."""
SECONDS: Final = 5.0
"""Seconds after which a hanging test fails."""


class BodyError(Exception):
    """An error that the write's function raises."""


def busy() -> RunStoreError:
    """What a store raises where the database asks for a retry."""
    failure = DatabaseError("busy", transient=True)
    return RunStoreError("persistence_failed", "create", "database operation failed", {"cause": failure})


def creating(run_id: str) -> Any:
    """A body that creates one run."""

    async def body(inside: Any) -> None:
        await inside.runs.create(run_id, "{}")

    return body


async def writer_refuses(call: Any, code: str) -> None:
    """The call raises at once, with this code of the writer."""
    with pytest.raises(WriterError) as failure:
        await asyncio.wait_for(call, SECONDS)
    assert failure.value.code == code


class WritesChapter(Chapter):
    """``stores.write``."""

    async def test_what_is_done_inside_is_there_afterwards_and_the_answer_is_given_back(self, stores: Any) -> None:
        async def body(inside: Any) -> Any:
            await inside.runs.create(R, "{}")
            owned = await inside.runs.claim_and_own(R, PENDING, A, 0)
            await inside.attempts.put(RUNNING, A)
            assert await inside.attempts.get(ID) == RUNNING
            return owned

        assert await stores.write(body) == Activated()
        assert (await stores.runs.get(R)).owner == A
        assert await stores.attempts.get(ID) == RUNNING

    async def test_an_exception_of_the_function_leaves_nothing_of_it(self, stores: Any) -> None:
        await stores.runs.create(ONE, "{}")

        async def body(inside: Any) -> None:
            await inside.runs.claim_and_own(ONE, PENDING, A, 0)
            await inside.runs.create(TWO, "{}")
            raise BodyError

        with pytest.raises(BodyError):
            await stores.write(body)
        assert (await stores.runs.get(ONE)).status is RunStatus.PENDING
        assert await exists(stores, TWO) == [False]

    async def test_a_failed_operation_leaves_the_rest_of_the_write_usable(self, stores: Any) -> None:
        await stores.runs.create(ONE, "{}")

        async def body(inside: Any) -> None:
            await inside.runs.create(TWO, "{}")
            await refused(inside.runs.create(ONE, "{}"), "constraint")
            assert await inside.runs.claim_and_own(ONE, PENDING, A, 0) == Activated()

        await stores.write(body)
        assert await exists(stores, TWO) == [True]
        assert (await stores.runs.get(ONE)).owner == A

    async def test_a_constraint_that_is_not_caught_undoes_everything_and_is_not_tried_again(self, stores: Any) -> None:
        calls: list[int] = []

        async def body(inside: Any) -> None:
            calls.append(1)
            await inside.runs.create(ONE, "{}")
            await inside.runs.create(ONE, "{}")

        await refused(stores.write(body), "constraint")
        assert (calls, await exists(stores, ONE)) == ([1], [False])

    async def test_a_refused_operation_keeps_what_others_wrote(self, stores: Any) -> None:
        async def body(inside: Any) -> Any:
            await inside.runs.create(ONE, "{}")
            return await inside.runs.transition_owned(ONE, A, RunStatus.COMPLETED)

        assert await stores.write(body) == FenceLost()
        assert await exists(stores, ONE) == [True]

    async def test_the_whole_function_is_repeated_when_the_database_asks_for_it(self, stores: Any) -> None:
        calls: list[bool] = []
        reported: list[int] = []
        stores.writer.on_retry(lambda: reported.append(1))

        async def body(inside: Any) -> int:
            calls.extend(await exists(inside, ONE))
            await inside.runs.create(ONE, "{}")
            if len(calls) <= 1:
                raise BodyError from busy()
            return len(calls)

        assert await stores.write(body) == len(calls)
        assert (calls, reported, await exists(stores, ONE)) == ([False, False], [1], [True])

    async def test_writes_queue_and_one_that_is_cancelled_in_the_queue_leaves_the_holder_alone(
        self, stores: Any
    ) -> None:
        entered, leave = asyncio.Event(), asyncio.Event()
        order: list[str] = []

        def named(name: str) -> Any:
            async def body(inside: Any) -> None:
                order.append(name)
                await inside.runs.create(RunId(name), "{}")
                if name == "holder":
                    entered.set()
                    await leave.wait()

            return body

        holder = asyncio.ensure_future(stores.write(named("holder")))
        await entered.wait()
        queued = [asyncio.ensure_future(stores.write(named(name))) for name in ("a", "b", "c")]
        await asyncio.wait(queued, timeout=MOMENT)
        queued[1].cancel()
        await asyncio.wait({queued[1]}, timeout=SECONDS)
        assert queued[1].cancelled()
        leave.set()
        await asyncio.gather(holder, queued[0], queued[2])
        assert order == ["holder", "a", "c"]
        assert await exists(stores, "holder", "a", "b", "c") == [True, True, False, True]

    async def test_a_function_that_is_cancelled_leaves_nothing_and_the_next_write_works(self, stores: Any) -> None:
        entered = asyncio.Event()

        async def body(inside: Any) -> None:
            await inside.runs.create(ONE, "{}")
            entered.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(stores.write(body))
        await entered.wait()
        task.cancel()
        await asyncio.wait({task}, timeout=SECONDS)
        assert task.cancelled()
        assert await exists(stores, ONE) == [False]
        await stores.write(creating(ONE))
        assert await exists(stores, ONE) == [True]

    @pytest.mark.parametrize("times", [1, 2, 3])
    async def test_wherever_it_is_cancelled_it_happened_wholly_or_not_at_all(self, stores: Any, times: int) -> None:
        hooks: list[int] = []

        def writing(place: int) -> Any:
            async def body(inside: Any) -> None:
                await inside.runs.create(RunId(f"one-{place}"), "{}")
                inside.after_commit(lambda: hooks.append(place))
                await inside.write(creating(f"two-{place}"))

            return body

        for place in range(1, MOST):
            ended = await asyncio.wait_for(cancel_at(stores.write(writing(place)), place, times), SECONDS)
            assert ended.error is None
            found = [*await exists(stores, f"one-{place}", f"two-{place}"), place in hooks]
            assert found in ([True] * 3, [False] * 3)
            assert ended.was_cancelled or all(found)
            if not ended.was_struck:
                assert place > times
                return
        pytest.fail("the write waits for ever")
