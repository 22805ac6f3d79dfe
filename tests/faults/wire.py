"""A proxy of PostgreSQL's wire protocol that cuts a connection round the message that decides over a write.

That message is COMMIT, or the one that executes a statement which commits by itself.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

Cut: TypeAlias = Literal["request", "reply", "both", "late", "held"]
"""What is lost: the request never arrives; or it is answered and the reply is lost; or nobody waits for the reply; or
it arrives when the client has long gone; or it is held back until it is ``released``, to arrive or not."""
CUTS: tuple[Cut, ...] = ("request", "reply", "both", "late")

LATE = 0.03
"""Seconds by which a late request is held back."""
_STARTUP = 196_608
_HEAD = 5
_WRITES = re.compile(rb"\b(INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
"""What a statement that writes has in it; what the driver asks for itself, such as types, has none of it."""

Meanwhile: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(eq=False)
class Link:
    """One connection through the proxy: the client's side, the server's, and where its transaction stands."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    started: bool = False
    in_transaction: bool = False
    statements: dict[bytes, bytes] = field(default_factory=dict)
    replies_lost: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def abort(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class WireProxy:
    """Passes messages on; once armed, it cuts at the next one that decides over a write."""

    def __init__(self, url: str) -> None:
        self.cuts = 0
        self._server = urlsplit(url)
        self._cut: Cut | None = None
        self._meanwhile: Meanwhile | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._striking: set[asyncio.Task[None]] = set()
        self._links: set[Link] = set()
        self._arrives = False
        self.held, self._released, self.settled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def hold(self, *, arrives: bool) -> None:
        """Hold the next decision back: ``held`` tells when it has come; once released, it arrives or is lost."""
        self._arrives = arrives
        for event in (self.held, self._released, self.settled):
            event.clear()
        self.arm("held")

    def release(self) -> None:
        """Let what is held back go where it goes; ``settled`` tells when it is there."""
        self._released.set()

    def disarm(self) -> None:
        self._cut = self._meanwhile = None

    def arm(self, cut: Cut, meanwhile: Meanwhile | None = None) -> None:
        """Cut at the next decision; ``meanwhile`` is done before the client knows of it."""
        self._cut, self._meanwhile = cut, meanwhile

    async def quiet(self) -> None:
        """Until nothing that was cut is on its way to the server any more."""
        while self._striking:
            await asyncio.wait(self._striking)

    @property
    def armed(self) -> bool:
        return self._cut is not None

    @property
    def armed_late(self) -> bool:
        """Whether the next write may still arrive after its client has looked again."""
        return self._cut in {"both", "late"}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        """The URL under which the server is reached through this proxy."""
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        try:
            yield urlunsplit(self._server._replace(netloc=f"{self._server.username}@127.0.0.1:{port}"))
        finally:
            listener.close()
            for link in list(self._links):
                link.abort()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        assert self._server.hostname is not None
        try:
            from_server, to_server = await asyncio.open_connection(self._server.hostname, self._server.port)
        except OSError:
            # The server is down just now, and so is what passes for it.
            writer.transport.abort()
            self._tasks.discard(task)
            return
        link = Link(writer, to_server)
        self._links.add(link)
        back = asyncio.ensure_future(self._back(from_server, link))
        try:
            await self._forth(reader, link)
        finally:
            link.abort()
            self._links.discard(link)
            self._tasks.discard(task)
            await back

    async def _back(self, reader: asyncio.StreamReader, link: Link) -> None:
        try:
            while data := await reader.read(65_536):
                link.answered.set()
                if not link.replies_lost:
                    link.client.write(data)
        except OSError:
            pass
        link.answered.set()
        if not link.replies_lost:
            link.client.transport.abort()

    async def _forth(self, reader: asyncio.StreamReader, link: Link) -> None:
        try:
            while (message := await _message(reader, link)) is not None:
                decides = _follow(message, link)
                if decides and self._cut is not None:
                    await self._strike(link, message, reader)
                    return
                link.server.write(message)
        except OSError:
            return

    async def _strike(self, link: Link, message: bytes, reader: asyncio.StreamReader) -> None:
        cut, self._cut = self._cut, None
        meanwhile, self._meanwhile = self._meanwhile, None
        self.cuts += 1
        striking = asyncio.current_task()
        assert striking is not None
        self._striking.add(striking)
        striking.add_done_callback(self._striking.discard)
        if cut == "request":
            link.server.transport.abort()
            if meanwhile is not None:
                await meanwhile()
            return
        link.replies_lost = True
        link.answered.clear()
        if message[:1] != b"Q":
            # What executes a statement is followed by what asks for the end of the exchange.
            message += await _rest(reader, link)
        if cut == "held":
            await self._keep(link, message)
            return
        if cut == "late":
            link.client.transport.abort()
            await asyncio.sleep(LATE)
        link.server.write(message)
        await link.server.drain()
        if cut == "both":
            link.client.transport.abort()
        await asyncio.wait_for(link.answered.wait(), 10)
        if meanwhile is not None:
            await meanwhile()

    async def _keep(self, link: Link, message: bytes) -> None:
        self.held.set()
        await self._released.wait()
        if self._arrives:
            link.server.write(message)
            await asyncio.wait_for(link.answered.wait(), 10)
        self.settled.set()


async def _rest(reader: asyncio.StreamReader, link: Link) -> bytes:
    found = b""
    while not found.endswith(b"S\x00\x00\x00\x04"):
        message = await _message(reader, link)
        if message is None:
            break
        found += message
    return found


async def _message(reader: asyncio.StreamReader, link: Link) -> bytes | None:
    """The client's next message, or None where it has gone."""
    try:
        if not link.started:
            head = await reader.readexactly(8)
            link.started = int.from_bytes(head[4:8], "big") == _STARTUP
            return head + await reader.readexactly(int.from_bytes(head[:4], "big") - 8)
        head = await reader.readexactly(_HEAD)
        return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
    except asyncio.IncompleteReadError:
        return None


def _follow(message: bytes, link: Link) -> bool:
    """Keep account of statements and transactions; whether this message decides over a write."""
    kind, body = message[:1], message[_HEAD:]
    if kind == b"P":
        name, sql, *_ = body.split(b"\x00")
        link.statements[name] = sql.strip()
    if kind == b"Q":
        word = body.upper()
        link.in_transaction = word.startswith(b"BEGIN") or (
            link.in_transaction and not word.startswith((b"COMMIT", b"ROLLBACK"))
        )
        return word.startswith(b"COMMIT")
    if kind == b"B" and not link.in_transaction:
        _portal, name, *_ = body.split(b"\x00")
        return _WRITES.search(link.statements.get(name, b"")) is not None
    return False
