"""A relay before a server whose connections can be cut and stalled."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Passes bytes between clients and a server on this host."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[int]:
        """The port on which it listens."""
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
            self._open.set()
            self.cut()

    def cut(self) -> None:
        """Every connection is gone."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def stall(self, seconds: float) -> None:
        """Nothing gets through for so long."""
        self._open.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, to_server}
        await asyncio.gather(self._pass(reader, to_server), self._pass(from_server, writer))
        self._writers -= {writer, to_server}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._open.wait()
                writer.write(data)
        writer.transport.abort()
