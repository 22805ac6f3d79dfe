"""The caller of Restate's service reads what HTTP servers answer, and keeps its connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.bench.peers.restate_program import Connections

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n10"
CHUNKED = b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
REFUSED = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"


@asynccontextmanager
async def serving(answer: Callable[[str], bytes]) -> AsyncIterator[tuple[Connections, list[int]]]:
    """Connections to a server that answers by a request's first line, and its count of requests by connection."""
    requests: list[int] = []
    ended: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(requests)
        requests.append(0)
        ended.append(asyncio.Event())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                [length] = [line.split(": ")[1] for line in head.split("\r\n") if line.startswith("Content-Length")]
                await reader.readexactly(int(length))
                requests[number] += 1
                writer.write(answer(head.split("\r\n")[0]))
        except asyncio.IncompleteReadError:
            writer.close()
            await writer.wait_closed()
            ended[number].set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        connections = Connections(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            yield connections, requests
        finally:
            connections.close()
            for each in ended:
                await each.wait()


async def test_an_answer_is_read_whether_it_tells_its_size_or_comes_in_pieces():
    async with serving(lambda line: CHUNKED if "/pieces" in line else SIZED) as (connections, requests):
        assert await connections.ask("POST", "/whole", b"10") == b"10"
        assert await connections.ask("GET", "/pieces") == b"abc0123456789"
        assert await connections.ask("POST", "/whole", b"10") == b"10"
        assert requests == [3], "one connection, kept"


async def test_calls_at_the_same_time_have_connections_of_their_own():
    async with serving(lambda line: SIZED) as (connections, requests):
        for _ in range(2):
            await asyncio.gather(*(connections.ask("POST", "/whole", b"1") for _ in range(3)))
        assert requests == [2, 2, 2]


async def test_an_answer_that_is_no_success_is_an_error():
    async with serving(lambda line: REFUSED) as (connections, _):
        with pytest.raises(RuntimeError, match="503"):
            await connections.ask("POST", "/whole", b"1")
