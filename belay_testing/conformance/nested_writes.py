"""Nested writes, which stores may be used where, and what runs after the commit."""

import asyncio
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records.attempt import AttemptId
from belay_core.records.run import RunStatus
from belay_testing.conformance.auxiliary import exists
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import A, together
from belay_testing.conformance.writes import ONE, THREE, TWO, BodyError, busy, creating, writer_refuses


class NestedWritesChapter(Chapter):
    """Nested writes, and which stores may be used where."""

    async def test_a_write_within_a_write_is_rolled_back_alone(self, stores: Any) -> None:
        async def within(inside: Any) -> None:
            await inside.runs.create(TWO, "{}")
            assert await exists(inside, ONE) == [True]
            raise BodyError

        async def body(inside: Any) -> None:
            await inside.runs.create(ONE, "{}")
            with pytest.raises(BodyError):
                await inside.write(within)
            assert await exists(inside, TWO) == [False]
            await inside.runs.create(THREE, "{}")

        await stores.write(body)
        assert await exists(stores, ONE, TWO, THREE) == [True, False, True]

    async def test_what_a_write_within_a_write_kept_goes_with_the_outer_one(self, stores: Any) -> None:
        async def body(inside: Any) -> None:
            await inside.write(creating(TWO))
            raise BodyError

        with pytest.raises(BodyError):
            await stores.write(body)
        assert await exists(stores, TWO) == [False]

    async def test_a_function_that_opens_a_write_of_its_own_can_be_called_inside_one(self, stores: Any) -> None:
        async def library(run_id: RunId) -> None:
            async def body(inside: Any) -> None:
                await inside.runs.create(run_id, "{}")
                if run_id == TWO:
                    raise BodyError

            await stores.write(body)

        async def body(_inside: Any) -> None:
            await library(ONE)
            with pytest.raises(BodyError):
                await library(TWO)

        await stores.write(body)
        assert await exists(stores, ONE, TWO) == [True, False]

    async def test_operations_side_by_side_inside_take_turns(self, stores: Any) -> None:
        async def within(inside: Any) -> None:
            await inside.runs.create(RunId("w1"), "{}")
            await inside.runs.create(RunId("w2"), "{}")
            raise BodyError

        async def body(inside: Any) -> list[Any]:
            calls = (inside.runs.create(ONE, "{}"), inside.write(within), inside.runs.create(TWO, "{}"))
            return await together(*calls)

        answers = await stores.write(body)
        assert [type(answer) for answer in answers] == [type(None), BodyError, type(None)]
        assert await exists(stores, ONE, TWO, "w1", "w2") == [True, True, False, False]

    async def test_within_a_write_nothing_is_repeated_but_the_whole(self, stores: Any) -> None:
        calls: list[str] = []

        async def within(_inside: Any) -> None:
            calls.append("inner")
            if calls.count("inner") == 1:
                raise busy()

        async def body(inside: Any) -> None:
            calls.append("outer")
            await inside.write(within)

        await stores.write(body)
        assert calls == ["outer", "inner"] * 2

    async def test_the_stores_outside_are_refused_inside_at_once(self, stores: Any) -> None:
        async def body(inside: Any) -> None:
            await inside.runs.create(ONE, "{}")
            await writer_refuses(stores.runs.get(ONE), "inside")
            await writer_refuses(stores.runs.create(TWO, "{}"), "inside")
            await writer_refuses(stores.runs.heartbeat(ONE, A, 0), "inside")
            await writer_refuses(stores.attempts.get(AttemptId(ONE, "d", 1)), "inside")
            await writer_refuses(stores.journal.read(ONE), "inside")
            await writer_refuses(stores.waiting.wake(ONE), "inside")

        await stores.write(body)
        assert (await stores.runs.get(ONE)).status is RunStatus.PENDING

    async def test_the_outer_level_is_refused_inside_the_inner_one(self, stores: Any) -> None:
        async def body(outer: Any) -> None:
            async def within(_inner: Any) -> None:
                await writer_refuses(outer.runs.create(ONE, "{}"), "inside")

            await outer.write(within)
            await outer.runs.create(TWO, "{}")

        await stores.write(body)
        assert await exists(stores, ONE, TWO) == [False, True]

    async def test_a_transaction_is_over_with_its_function(self, stores: Any) -> None:
        async def body(inside: Any) -> Any:
            return inside

        inside = await stores.write(body)
        await writer_refuses(inside.runs.create(ONE, "{}"), "ended")
        await writer_refuses(inside.write(body), "ended")
        assert await exists(stores, ONE) == [False]

    async def test_a_task_that_outlives_the_write_it_was_started_in_uses_the_stores_outside_it(
        self, stores: Any
    ) -> None:
        ended = asyncio.Event()

        async def later() -> None:
            await ended.wait()
            await stores.runs.create(ONE, "{}")

        async def body(_inside: Any) -> Any:
            return asyncio.ensure_future(later())

        task = await stores.write(body)
        ended.set()
        await task
        assert await exists(stores, ONE) == [True]


class WriteHooksChapter(Chapter):
    """``after_commit``."""

    async def test_hooks_run_once_after_the_commit(self, stores: Any) -> None:
        ran: list[str] = []

        async def within(inside: Any) -> None:
            assert inside.after_commit(lambda: ran.append("within")) is True

        async def body(inside: Any) -> Any:
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
        assert ran == ["first", "found by its place", "within"]

    async def test_what_is_rolled_back_or_repeated_takes_its_hooks_along(self, stores: Any) -> None:
        ran: list[Any] = []
        attempts: list[int] = []

        async def within(inside: Any) -> None:
            inside.after_commit(lambda: ran.append("rolled back"))
            raise BodyError

        async def body(inside: Any) -> None:
            attempts.append(len(attempts) + 1)
            number = attempts[-1]
            inside.after_commit(lambda: ran.append(number))
            with pytest.raises(BodyError):
                await inside.write(within)
            if number == 1:
                raise busy()

        await stores.write(body)
        assert (attempts, ran) == ([1, 2], [2])
        with pytest.raises(BodyError):
            await stores.write(within)
        assert ran == [2]

    async def test_a_hook_that_fails_keeps_no_other_from_running_and_undoes_nothing(
        self, stores: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        ran: list[int] = []

        def fail() -> None:
            raise BodyError("4711-is-a-secret")

        async def body(inside: Any) -> None:
            await inside.runs.create(ONE, "{}")
            for hook in (lambda: ran.append(1), fail, lambda: ran.append(2)):
                inside.after_commit(hook)

        await stores.write(body)
        assert (ran, await exists(stores, ONE)) == ([1, 2], [True])
        assert "BodyError" in caplog.text
        assert "secret" not in caplog.text
