"""Waits of runs: declared by their owners, cleared by any caller, listed in the order in which they are due."""

import json
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records.attempt import ABSENT
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.waiting import Wait, WaitingRow
from belay_core.stores.run_contract import NotFound, Transitioned
from belay_core.stores.waiting import NotWaiting, Parked, Woken
from belay_testing.conformance.auxiliary import LONG, QUESTION, kinds, parked
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import A, B, R, own


async def listed(stores: Any, **filters: Any) -> list[RunId]:
    """The runs that wait, in order."""
    return [row.run_id for row in await stores.waiting.waiting_runs(**filters)]


class WaitsChapter(Chapter):
    """The waiting store."""

    async def test_the_owner_parks_and_the_wait_outlives_its_ownership(self, stores: Any) -> None:
        row = await parked(stores, R, "human", 500, "token", QUESTION, suspend=False)
        assert row == WaitingRow(R, RunStatus.RUNNING, "human", 500, "token", QUESTION, None)
        assert await stores.waiting.waiting(R) == row
        assert await stores.runs.transition_owned(R, A, RunStatus.SUSPENDED) == Transitioned()
        suspended = WaitingRow(R, RunStatus.SUSPENDED, "human", 500, "token", QUESTION, None)
        assert await stores.waiting.waiting(R) == suspended
        assert await kinds(stores) == ["created", "parked"]
        entry = (await stores.journal.read(R))[-1]
        assert json.loads(entry.facts) == {"reason": "human", "token": "token", "wake_at_ms": 500}

    async def test_parking_again_clears_what_is_left_out(self, stores: Any) -> None:
        await parked(stores, R, "human", 500, "token", QUESTION, suspend=False)
        row = WaitingRow(R, RunStatus.RUNNING, "event", None, None, ABSENT, None)
        assert await stores.waiting.park(R, Wait("event"), A) == Parked(row)
        assert (await stores.waiting.waiting(R)).request is ABSENT

    async def test_a_question_may_be_null_which_is_not_none_at_all(self, stores: Any) -> None:
        row = await parked(stores, R, "human", request=None)
        assert row.request is None
        assert (await stores.waiting.waiting(R)).request is None

    async def test_only_the_owner_parks(self, stores: Any) -> None:
        assert await stores.waiting.park(R, Wait("event"), A) == NotFound()
        await own(stores.runs)
        for stranger in (B, OwnerId(A.host_id, A.pid, "other"), OwnerId(A.host_id, A.pid + 1, A.nonce)):
            assert await stores.waiting.park(R, Wait("event"), stranger) == NotFound()
        await stores.runs.transition_owned(R, A, RunStatus.SUSPENDED)
        assert await stores.waiting.park(R, Wait("event"), A) == NotFound()
        assert await stores.waiting.waiting(R) is None
        assert await kinds(stores) == ["created"]

    async def test_waking_gives_what_was_waited_for_and_happens_once(self, stores: Any) -> None:
        await parked(stores, LONG, "human", 500, "token", QUESTION)
        woken = await stores.waiting.wake(LONG)
        assert woken == Woken(WaitingRow(LONG, RunStatus.SUSPENDED, "human", 500, "token", QUESTION, None))
        assert await stores.waiting.wake(LONG) == NotWaiting()
        assert await stores.waiting.waiting(LONG) is None
        assert await stores.waiting.wake(RunId("missing")) == NotFound()
        assert await kinds(stores, LONG) == ["created", "parked", "woken"]
        assert (await stores.runs.get(LONG)).status is RunStatus.SUSPENDED

    @pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
    async def test_a_run_that_is_over_waits_for_nothing_and_never_changes(self, stores: Any, status: RunStatus) -> None:
        await parked(stores, R, "event", suspend=False)
        await stores.runs.transition_owned(R, A, status)
        before = await kinds(stores)
        assert await stores.waiting.waiting(R) is None
        assert await listed(stores) == []
        assert await stores.waiting.wake(R) == NotWaiting()
        assert await kinds(stores) == before

    async def test_waiting_runs_are_listed_in_the_order_in_which_they_are_due(self, stores: Any) -> None:
        for name, wake in (("d", 300), ("c", None), ("b", 100), ("a", 300), ("e", 200)):
            await parked(stores, RunId(name), "timer" if wake else "event", wake)
        await own(stores.runs, run_id=RunId("busy"))
        await parked(stores, LONG, "timer", 250, suspend=False)
        assert await listed(stores) == ["b", "e", LONG, "a", "d", "c"]
        assert await listed(stores, due_before_ms=250) == ["b", "e", LONG]
        assert await listed(stores, due_before_ms=249) == ["b", "e"]
        assert await listed(stores, reason="event") == ["c"]
        assert await listed(stores, reason="tim") == []
        await stores.runs.request_cancel(RunId("a"), 7)
        await stores.runs.request_cancel(RunId("busy"), 7)
        assert await listed(stores, cancel_requested=True) == ["a"]
        assert await listed(stores, cancel_requested=False, reason="timer") == ["b", "e", LONG, "d"]
        [row] = await stores.waiting.waiting_runs(cancel_requested=True)
        assert row.cancel_requested_at_ms == 7
