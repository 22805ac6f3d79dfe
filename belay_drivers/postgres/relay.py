"""Wake-ups between processes: what one of them pokes the others are notified of, gathered and beside the commits.

A notification is a hint. It may be lost, late or about nothing, and whoever waits looks again by itself in the end.
Where no other process listens none is sent: each asks when it begins to listen, and whoever is there answers. A session
that listens to the channel and does not answer, as a tool may, is told nothing by a process that is alone otherwise.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from belay_core.clock import Signal
from belay_core.jitter import SystemJitter
from belay_core.stores.notifier import Notifier, Relay
from belay_drivers.postgres.connections import Address, held
from belay_drivers.postgres.notifications import Notification, PendingNotifications
from belay_drivers.postgres.peer_presence import PeerPresence, PeerState

SPACING: Final = 0.01
"""Seconds between two notifications of this process at least."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 30.0
"""Seconds between two tries to connect, longer after each that failed; and how long silence is believed in."""
FAREWELL: Final = 1.0
"""Seconds that closing waits at most for what is still to be told."""

# One channel a schema. The lock that a notification takes through its commit is held for no flush of the log.
_PREPARED: Final = (
    "SELECT 'belay_' || to_hex(hashtextextended('belay:' || current_schema(), 0)),"
    " set_config('synchronous_commit', 'off', false)"
)


@asynccontextmanager
async def listening(notifier: Notifier, address: Address) -> AsyncGenerator[None]:
    """Relay wake-ups until the block is left; not behind a pooler, which keeps nobody listening."""
    if address.pooler:
        yield
        return
    relay = PostgresRelay(notifier, lambda: held(address))
    notifier.attach_relay(relay)
    try:
        yield
    finally:
        await relay.close()


class PostgresRelay(Relay):
    """Hears and tells over one connection of its own, opened when somebody first pokes or waits.

    Where there is no connection it tries again, ever less often, and those who wait look as often as without it.
    """

    def __init__(self, notifier: Notifier, connects: Callable[[], AsyncEngine]) -> None:
        self._notifier = notifier
        self._connects = connects
        self._untold = PendingNotifications()
        self._peers = PeerPresence()
        self._stirred = Signal()
        """Set where there is something to tell, where the connection is lost, and at the end."""
        self._closing = Signal()
        self._wanted = asyncio.Event()
        """Set once somebody pokes or waits."""
        self._failing = False
        """Whether the last try to connect failed."""
        self._connected = False
        # In no context of the caller's: it outlives the span that is open there.
        loop = asyncio.get_running_loop()
        self._working = loop.create_task(self._work(), name="belay-relay", context=Context())

    @property
    def connected(self) -> bool:
        """Whether the connection listens."""
        return self._connected

    def publish(self, run_id: str | None, *, ready: bool) -> None:
        """Notify others soon, where there are any."""
        if not self._peers.alone and not self._closing.is_set():
            self._untold.add(run_id, ready=ready)
            self._stirred.set()
            self._wanted.set()

    def listen(self) -> None:
        """Be connected, or try to be."""
        self._wanted.set()

    async def close(self) -> None:
        """Tell what is still to be told, if that is possible soon, and let go of the connection."""
        self._closing.set()
        self._stirred.set()
        try:
            if self._connected or (self._untold and not self._failing):
                await asyncio.wait([self._working], timeout=FAREWELL)
        finally:
            self._working.cancel()
            await asyncio.wait([self._working])

    async def _work(self) -> None:
        await self._wanted.wait()
        engine, jitter, loop = self._connects(), SystemJitter(), asyncio.get_running_loop()
        pause = FIRST_PAUSE
        try:
            while True:
                began = loop.time()
                if (line := await self._opened(engine)) is not None:
                    await self._served(line)
                if self._closing.is_set():
                    return
                if loop.time() - began > LONGEST_PAUSE:
                    pause = FIRST_PAUSE
                await self._closing.within(pause * (0.5 + jitter.draw() / 2))
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            await engine.dispose()

    async def _opened(self, engine: AsyncEngine) -> "_Line | None":
        try:
            line = await _Line.opened(engine, self._heard, self._stirred.set)
        except Exception:  # noqa: BLE001  (whatever stands in the way, there is another try)
            line = None
        self._failing = line is None
        return line

    async def _served(self, line: "_Line") -> None:
        """Hear and tell over the connection until it is lost, or everything is over."""
        parting = False
        # A hint that cannot be given is not given; what was told while nobody listened here, one look makes up for.
        with suppress(Exception):
            try:
                self._connected = True
                self._notifier.deliver(None, ready=True)
                if not self._closing.is_set():
                    self._untold.announce()
                parting = await self._tell_until_lost(line)
            finally:
                self._connected = False
                self._company_lost()
                await line.close(broken=not parting)

    async def _tell_until_lost(self, line: "_Line") -> bool:
        """Whether everything is over, and the connection is whole."""
        loop, free_at = asyncio.get_running_loop(), 0.0
        while not line.lost:
            self._stirred.clear()
            if self._peers.known(loop.time()) is PeerState.ALONE:
                self._untold.forget()
            if self._untold:
                if (early := free_at - loop.time()) > 0:
                    await self._closing.within(early)
                free_at = loop.time() + SPACING
                await line.notify(self._untold.taken(asking=self._asks(loop.time())))
            elif self._closing.is_set():
                return True
            else:
                await self._stirred.within(LONGEST_PAUSE)
                if not self._stirred.is_set():
                    await line.look()
        return False

    def _asks(self, now: float) -> bool:
        """Whether others are asked now: where nothing is known of them, unless their answer would come too late."""
        if self._closing.is_set() or self._peers.known(now) is not PeerState.NOTHING:
            return False
        self._peers.ask(now)
        return True

    def _company_lost(self) -> None:
        """Nothing is known of others any more; what was kept from them is made up for."""
        if self._peers.alone:
            self._untold.add_anything()
        self._peers = PeerPresence()

    def _heard(self, payload: str) -> None:
        notice = Notification.read(payload)
        self._answer(asked=notice.asks)
        self._notifier.deliver(notice.run_ids, ready=notice.ready)

    def _answer(self, *, asked: bool) -> None:
        """Somebody else is there."""
        if self._peers.alone:
            # He may have come, and looked, before what happened since; a question needs no other answer.
            self._untold.add_anything()
        elif asked:
            self._untold.announce()
        self._peers.hear(asyncio.get_running_loop().time())
        if self._untold:
            self._stirred.set()


class _Line:
    """An open connection that listens."""

    def __init__(self, connection: AsyncConnection, driver: Any, channel: str) -> None:
        self._connection = connection
        self._driver = driver
        self._sql = f"SELECT pg_notify('{channel}', $1)"
        self._prepared: Any = None

    @classmethod
    async def opened(cls, engine: AsyncEngine, heard: Callable[[str], None], lost: Callable[[], None]) -> "_Line":
        """Connect and listen; ``heard`` is given what others tell, ``lost`` is called when the connection is."""
        connection = await engine.connect()
        try:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            channel: str = await driver.fetchval(_PREPARED)
            ours = driver.get_server_pid()

            def told(_driver: object, teller: int, _channel: str, payload: str) -> None:
                if teller != ours:
                    heard(payload)

            def ended(_driver: object) -> None:
                lost()

            driver.add_termination_listener(ended)
            await driver.add_listener(channel, told)
        except BaseException:
            await connection.invalidate()
            await connection.close()
            raise
        return cls(connection, driver, channel)

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        gone: bool = self._driver.is_closed()
        return gone

    async def notify(self, payload: str) -> None:
        """Tell everybody who listens."""
        if self._prepared is None:
            # Not before: a connection that has prepared and not executed yet is told nothing by the server.
            self._prepared = await self._driver.prepare(self._sql)
        await self._prepared.fetch(payload)

    async def look(self) -> None:
        """Find out whether the other side is still there."""
        await self._driver.execute("SELECT 1")

    async def close(self, *, broken: bool) -> None:
        """Close it; one that is broken without a word to the other side."""
        if broken:
            await self._connection.invalidate()
        await self._connection.close()
