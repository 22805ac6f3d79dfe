"""Writes whose reply was lost know their own work again: sent twice they happen once, and answer the same."""

import pytest

from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.waiting import Wait
from belay_drivers.sql.connection.database import Database, undone

A = OwnerId("host-a", 101, "owner-a")
RUN = RunId("run")


@pytest.fixture
def stores(kit):
    return kit.stores


class Lossy:
    """Lets the first sending of a write arrive (or not) and its reply be lost, as a cut connection does."""

    def __init__(self, monkeypatch, *, arrives):
        write = Database.write

        async def lossy(database, body, resent=None):
            assert resent is not None
            if arrives:
                await write(database, body)
            else:
                await write(database, lambda tx: undone(tx, body(tx)))
            return await write(database, resent)

        monkeypatch.setattr(Database, "write", lossy)


async def prepared(stores, verb):
    await stores.runs.create(RUN, "{}")
    now = int(stores.clock.now())
    await stores.runs.claim_and_own(RUN, RunSnapshot(RunStatus.PENDING), A, now)
    if verb == "wake":
        await stores.waiting.park(RUN, Wait("human", 5, request={"q": 1}), A)
    if verb == "delete":
        await stores.runs.transition_owned(RUN, A, RunStatus.COMPLETED)


CALLS = {
    "park": lambda stores: stores.waiting.park(RUN, Wait("human", 5, request={"q": 1}), A),
    "wake": lambda stores: stores.waiting.wake(RUN),
    "append": lambda stores: stores.journal.append(RUN, A, "mine", {"n": 1}),
    "delete": lambda stores: stores.retention.delete(RUN),
}
ENTRY = {"park": "parked", "wake": "woken", "append": "mine", "delete": "deleted"}


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("verb", CALLS)
async def test_a_write_that_is_sent_again_happens_once(stores, monkeypatch, verb, arrives):
    await prepared(stores, verb)
    with monkeypatch.context() as patch:
        Lossy(patch, arrives=arrives)
        answer = await CALLS[verb](stores)
    assert type(answer).__name__ == {"park": "Parked", "wake": "Woken", "append": "Appended", "delete": "Deleted"}[verb]
    kinds = [entry.kind for entry in await stores.journal.read(RUN)]
    assert kinds.count(ENTRY[verb]) == 1
    if verb == "wake":
        assert answer.previous.request == {"q": 1}
    if verb == "append":
        assert (await stores.journal.read(RUN))[-1].entry == answer.entry
