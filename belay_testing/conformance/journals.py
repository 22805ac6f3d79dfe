"""The two streams of a run: its events, and its ownership facts."""

import json
from typing import Any

from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import JournalEntry
from belay_core.stores.journal import Appended
from belay_core.stores.run_contract import FenceLost, NotFound
from belay_testing.conformance.auxiliary import facts, kinds
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import A, B, R, own


class JournalChapter(Chapter):
    """The journal."""

    async def test_the_owner_adds_events_of_its_own_and_reads_them_in_order(self, stores: Any) -> None:
        await own(stores.runs)
        first = await stores.journal.append(R, A, "order.charged", {"amount": 12, "to": "Zoë", "none": None})
        second = await stores.journal.append(R, A, "order.shipped", [1, True, "x"])
        assert isinstance(first, Appended)
        assert second == Appended(first.entry + 1)
        reported = await stores.journal.read(R, after=1)
        assert [(entry.entry, entry.kind, json.loads(entry.facts)) for entry in reported] == [
            (first.entry, "order.charged", {"amount": 12, "to": "Zoë", "none": None}),
            (second.entry, "order.shipped", [1, True, "x"]),
        ]
        assert [(entry.run_id, entry.at_ms) for entry in reported] == [(R, 0)] * 2

    async def test_only_the_owner_adds_events(self, stores: Any) -> None:
        assert await stores.journal.append(R, A, "x", 1) == NotFound()
        await own(stores.runs)
        for stranger in (B, OwnerId("host-b", A.pid, A.nonce), OwnerId(A.host_id, A.pid, "other")):
            assert await stores.journal.append(R, stranger, "x", 1) == FenceLost()
        await stores.runs.transition_owned(R, A, RunStatus.COMPLETED)
        assert await stores.journal.append(R, A, "x", 1) == FenceLost()
        assert await kinds(stores) == ["created"]

    async def test_a_part_of_a_stream_is_read_from_behind_an_entry(self, stores: Any) -> None:
        await own(stores.runs)
        for number in range(5):
            await stores.journal.append(R, A, "n", number)
        whole = await stores.journal.read(R)
        assert [entry.kind for entry in whole] == ["created", *["n"] * 5]
        parts: list[JournalEntry] = []
        while part := await stores.journal.read(R, after=parts[-1].entry if parts else 0, limit=2):
            assert len(part) <= 2
            parts += part
        assert tuple(parts) == whole
        assert await stores.journal.ownership(R, after=2, limit=1) == (await stores.journal.ownership(R))[1:2]
        assert await stores.journal.ownership(R, after=3) == ()
        assert await stores.journal.read(RunId("unknown")) == ()
        assert await stores.journal.ownership(RunId("unknown")) == ()

    async def test_events_and_ownership_never_meet_and_count_together(self, stores: Any) -> None:
        await own(stores.runs)
        await stores.journal.append(R, A, "mine", None)
        await stores.runs.transition_owned(R, A, RunStatus.SUSPENDED)
        assert await kinds(stores) == ["created", "mine"]
        assert [what for what, *_ in await facts(stores)] == ["claimed", "activated", "released"]
        both = [*await stores.journal.read(R), *await stores.journal.ownership(R)]
        assert sorted(entry.entry for entry in both) == [1, 2, 3, 4, 5]

    async def test_every_change_of_the_contract_but_heartbeats_and_attempts_is_an_event(self, stores: Any) -> None:
        await own(stores.runs)
        await stores.runs.heartbeat(R, A, 1)
        await stores.runs.transition_owned(R, A, RunStatus.RUNNING)
        assert await kinds(stores) == ["created"]
        await stores.runs.transition_owned(R, A, RunStatus.RUNNING, '{"n":1}')
        await stores.runs.request_cancel(R, 5)
        for _ in range(2):
            assert await stores.runs.acknowledge_cancel(R, A, 6)
        assert await kinds(stores) == ["created", "state_changed", "cancel_requested", "cancel_acknowledged"]
