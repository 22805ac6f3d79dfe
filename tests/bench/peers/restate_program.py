"""The caller of Restate's service: kept connections to the server's ingress, which ``--url`` names."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

from tests.bench.peers.workload import Tally, asked, closed_loop, queue_figures, reported


class Connection:
    """One HTTP/1.1 connection: a general client would cost more than what is measured."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of the answer. Raises ``RuntimeError`` where that is not a success."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n"
        kind = "Content-Type: application/json\r\n" if body else ""
        writer.write(f"{head}{kind}\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        answer = await self._body(reader, fields)
        if not lines[0].split()[1].startswith("2"):
            raise RuntimeError(f"Restate answered {lines[0]}")
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()

    @staticmethod
    async def _body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
        if fields.get("transfer-encoding") != "chunked":
            return await reader.readexactly(int(fields.get("content-length", 0)))
        parts = b""
        while size := int(await reader.readline(), 16):
            parts += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return parts


class Connections:
    """As many as are used at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._free: list[Connection] = []

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        connection = self._free.pop() if self._free else Connection(*self._address)
        try:
            return await connection.ask(method, path, body)
        finally:
            self._free.append(connection)

    def close(self) -> None:
        """Give up those that are not in use."""
        while self._free:
            self._free.pop().close()


async def main() -> None:
    given = asked()
    connections = Connections(given.url)
    steps = json.dumps(given.steps).encode()
    if not given.queued:
        return reported(await closed_loop(given, Tally(), lambda: connections.ask("POST", "/Bench/flow", steps)))

    async def start(turn: int) -> str:
        sent = json.loads(await connections.ask("POST", "/Bench/flow/send", steps))
        return str(sent["invocationId"])

    async def ended(handles: list[Any]) -> None:
        # Fifty connections ask for the results, as fifty coroutines started the runs.
        turns = iter(handles)

        async def waiter() -> None:
            for handle in turns:
                await connections.ask("GET", f"/restate/invocation/{handle}/attach")

        await asyncio.gather(*(waiter() for _ in range(50)))

    return reported(await queue_figures(given, start, ended))


if __name__ == "__main__":
    asyncio.run(main())
