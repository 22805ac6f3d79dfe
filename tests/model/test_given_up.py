"""The model's shortest way to take a command for done that was not, walked on PostgreSQL.

An owner gives a command up without knowing its end, and the request of its next command is lost. Then the first one
arrives after all, and raises the write sequence as the second one would have.
"""

import asyncio
from contextlib import suppress

from belay_drivers.postgres import open_postgres
from belay_testing.conformance.kit import Kit
from tests.drivers.test_lost_replies import Proxy

BIND, COMMIT, NOTES = b"B", b"COMMIT;", b"INSERT INTO belay_journal"


class Detour(Proxy):
    """Keeps one statement back after its client is gone, and lets it arrive when another one's commit is lost."""

    def __init__(self, url):
        super().__init__(url)
        self.kept: tuple[asyncio.StreamWriter, bytes] | None = None
        self.keeping = self.losing = False
        self.open = asyncio.Event()
        self.open.set()
        self.waited, self.arrived = asyncio.Event(), asyncio.Event()

    async def _up(self, reader, writer, pair, state):
        noting = False
        while data := await self._read(reader):
            noting = noting or NOTES in data
            if self.keeping and BIND in data:
                self.keeping, self.kept = False, (writer, data)
                state["kept"] = True
                self.open.clear()
                self._abort(pair - {writer})
                await self.arrived.wait()
                return
            if self.losing and noting and COMMIT in data:
                self.losing = False
                self.open.clear()
                self._abort(pair)
                assert self.kept is not None
                server, late = self.kept
                server.write(late)
                await self.arrived.wait()
                self.open.set()
                return
            if not self.open.is_set():
                self.waited.set()
            await self.open.wait()
            writer.write(data)
        self._abort(pair)

    async def _down(self, reader, writer, pair, state):
        while data := await self._read(reader):
            if "kept" in state:
                self.arrived.set()
                return
            writer.write(data)
        if "kept" not in state:
            self._abort(pair)


async def test_a_command_is_not_taken_for_done_because_one_given_up_before_it_arrived(
    belay_postgres, belay_clock, belay_ids
):
    detour = Detour(belay_postgres.url)
    async with detour.running() as url, open_postgres(url, clock=belay_clock, ids=belay_ids) as stores:
        # Nothing but the commands passes by.
        stores.notifier._relay = None
        kit = Kit(stores, belay_clock)
        lease = await kit.own()
        await kit.record(lease, kit.step("first#1"))
        detour.keeping = True
        given_up = asyncio.ensure_future(kit.record(lease, kit.step("second#1")))
        await asyncio.wait_for(detour.waited.wait(), 30)
        given_up.cancel()
        await asyncio.sleep(0)
        detour.open.set()
        with suppress(asyncio.CancelledError):
            await given_up
        detour.losing = True
        answer = await asyncio.wait_for(kit.park(lease, notes=("1",)), 30)
        assert detour.arrived.is_set(), "the detour was not taken"
        assert (type(answer).__name__, (await kit.run()).status) == ("RunParked", "suspended")
        assert (await kit.kinds()) == ["created", "noted", "suspended"]
