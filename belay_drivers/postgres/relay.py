"""Notifications between processes by LISTEN and NOTIFY, combined and sent outside the commits.

A notification is a hint. It may be lost, late or without a cause, and every waiter also polls. If no other process
listens, none is sent: each process asks when it begins to listen, and all listeners answer. A session that listens to
the channel and does not answer, as of a tool, gets no notification from a process without other peers.
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
from belay_drivers.postgres.connections import Address, dedicated_engine
from belay_drivers.postgres.notifications import Notification, PendingNotifications
from belay_drivers.postgres.peer_presence import PeerPresence, PeerState

SPACING: Final = 0.01
"""Minimum seconds between two notifications of this process."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 30.0
"""Seconds between two tries to connect, longer after each failure; also the seconds of silence before a check."""
CLOSING_TIMEOUT: Final = 1.0
"""Maximum seconds that closing waits for pending notifications."""

# One channel a schema. Without synchronous commit, the lock of NOTIFY is not held during a flush of the WAL.
_PREPARED: Final = (
    "SELECT 'belay_' || to_hex(hashtextextended('belay:' || current_schema(), 0)),"
    " set_config('synchronous_commit', 'off', false)"
)


@asynccontextmanager
async def relay_notifications(notifier: Notifier, address: Address) -> AsyncGenerator[None]:
    """Relay notifications until the block is left; not behind a pooler, which does not support LISTEN."""
    if address.pooler:
        yield
        return
    relay = PostgresRelay(notifier, lambda: dedicated_engine(address))
    notifier.attach_relay(relay)
    try:
        yield
    finally:
        await relay.close()


class PostgresRelay(Relay):
    """Sends and receives over one dedicated connection, opened at the first notification or listener.

    Without a connection it tries again with growing pauses, and waiters poll as often as without a relay.
    """

    def __init__(self, notifier: Notifier, connects: Callable[[], AsyncEngine]) -> None:
        self._notifier = notifier
        self._connects = connects
        self._pending = PendingNotifications()
        self._peers = PeerPresence()
        self._work_pending = Signal()
        """Set when there is something to send, when the connection is lost, and at the end."""
        self._closing = Signal()
        self._wanted = asyncio.Event()
        """Set at the first notification or listener."""
        self._failing = False
        """Whether the last try to connect failed."""
        self._connected = False
        # Not in the caller's context: the task outlives the span that is open there.
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name="belay-relay", context=Context())

    @property
    def connected(self) -> bool:
        """Whether the connection listens."""
        return self._connected

    def publish(self, run_id: str | None, *, ready: bool) -> None:
        """Notify peers soon, if there are any."""
        if not self._peers.alone and not self._closing.is_set():
            self._pending.add(run_id, ready=ready)
            self._work_pending.set()
            self._wanted.set()

    def listen(self) -> None:
        """Connect, unless connected."""
        self._wanted.set()

    async def close(self) -> None:
        """Send pending notifications, if that is possible soon, and close the connection."""
        self._closing.set()
        self._work_pending.set()
        try:
            if self._connected or (self._pending and not self._failing):
                await asyncio.wait([self._task], timeout=CLOSING_TIMEOUT)
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        await self._wanted.wait()
        engine, jitter, loop = self._connects(), SystemJitter(), asyncio.get_running_loop()
        pause = FIRST_PAUSE
        try:
            while True:
                began = loop.time()
                if (connection := await self._open(engine)) is not None:
                    await self._serve(connection)
                if self._closing.is_set():
                    return
                if loop.time() - began > LONGEST_PAUSE:
                    pause = FIRST_PAUSE
                await self._closing.within(pause * (0.5 + jitter.draw() / 2))
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            await engine.dispose()

    async def _open(self, engine: AsyncEngine) -> "_RelayConnection | None":
        try:
            connection = await _RelayConnection.opened(engine, self._received, self._work_pending.set)
        except Exception:  # noqa: BLE001  (every failure is followed by another try)
            connection = None
        self._failing = connection is None
        return connection

    async def _serve(self, connection: "_RelayConnection") -> None:
        """Send and receive over the connection until it is lost, or the relay is closed."""
        finished = False
        # A hint that cannot be sent is dropped; for those missed without a connection, all listeners read once.
        with suppress(Exception):
            try:
                self._connected = True
                self._notifier.deliver(None, ready=True)
                if not self._closing.is_set():
                    self._pending.announce()
                finished = await self._send_until_lost(connection)
            finally:
                self._connected = False
                self._forget_peers()
                await connection.close(broken=not finished)

    async def _send_until_lost(self, connection: "_RelayConnection") -> bool:
        """Returns whether the relay is closed, and the connection intact."""
        loop, free_at = asyncio.get_running_loop(), 0.0
        while not connection.lost:
            self._work_pending.clear()
            if self._peers.state(loop.time()) is PeerState.ALONE:
                self._pending.forget()
            if self._pending:
                if (early := free_at - loop.time()) > 0:
                    await self._closing.within(early)
                free_at = loop.time() + SPACING
                await connection.notify(self._pending.take_payload(asking=self._asks_for_peers(loop.time())))
            elif self._closing.is_set():
                return True
            else:
                await self._work_pending.within(LONGEST_PAUSE)
                if not self._work_pending.is_set():
                    await connection.check()
        return False

    def _asks_for_peers(self, now: float) -> bool:
        """Whether to ask for peers now: if nothing is known of them, and their answer would not come too late."""
        if self._closing.is_set() or self._peers.state(now) is not PeerState.UNKNOWN:
            return False
        self._peers.question_sent(now)
        return True

    def _forget_peers(self) -> None:
        """Forget what is known of peers; notifications that were not sent to them are replaced by a general one."""
        if self._peers.alone:
            self._pending.add_anything()
        self._peers = PeerPresence()

    def _received(self, payload: str) -> None:
        notice = Notification.read(payload)
        self._answer(asked=notice.asks)
        self._notifier.deliver(notice.run_ids, ready=notice.ready)

    def _answer(self, *, asked: bool) -> None:
        """Note a peer, and answer it."""
        if self._peers.alone:
            # It may have read before changes that were not sent since; a question needs no other answer.
            self._pending.add_anything()
        elif asked:
            self._pending.announce()
        self._peers.peer_heard(asyncio.get_running_loop().time())
        if self._pending:
            self._work_pending.set()


class _RelayConnection:
    """An open connection with LISTEN."""

    def __init__(self, connection: AsyncConnection, driver: Any, channel: str) -> None:
        self._connection = connection
        self._driver = driver
        self._sql = f"SELECT pg_notify('{channel}', $1)"
        self._prepared: Any = None

    @classmethod
    async def opened(
        cls, engine: AsyncEngine, on_notification: Callable[[str], None], lost: Callable[[], None]
    ) -> "_RelayConnection":
        """Connect and listen; ``on_notification`` gets payloads of peers, ``lost`` is called at the end."""
        connection = await engine.connect()
        try:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            channel: str = await driver.fetchval(_PREPARED)
            own_pid = driver.get_server_pid()

            def notified(_driver: object, sender: int, _channel: str, payload: str) -> None:
                if sender != own_pid:
                    on_notification(payload)

            def ended(_driver: object) -> None:
                lost()

            driver.add_termination_listener(ended)
            await driver.add_listener(channel, notified)
        except BaseException:
            await connection.invalidate()
            await connection.close()
            raise
        return cls(connection, driver, channel)

    @property
    def lost(self) -> bool:
        """Whether the connection is closed."""
        gone: bool = self._driver.is_closed()
        return gone

    async def notify(self, payload: str) -> None:
        """Send a notification."""
        if self._prepared is None:
            # Not earlier: the server sends no notification to a connection that has prepared and not executed.
            self._prepared = await self._driver.prepare(self._sql)
        await self._prepared.fetch(payload)

    async def check(self) -> None:
        """Check that the server still answers."""
        await self._driver.execute("SELECT 1")

    async def close(self, *, broken: bool) -> None:
        """Close it; a broken one without a message to the server."""
        if broken:
            await self._connection.invalidate()
        await self._connection.close()
