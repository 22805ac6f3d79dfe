"""The client for threads, scripts and forked processes."""

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from opentelemetry import trace

from belay_core import Client, Decided, InvalidTransitionError, RunNotFoundError, Worker, open_stores
from belay_integrations.blocking import BlockingClient
from belay_integrations.loop_thread import LoopThread
from belay_testing.spans import recorded_spans
from tests.integrations.greeting import greeting


@pytest.fixture
def client(url: str) -> Iterator[BlockingClient]:
    with BlockingClient(url, approver="ana") as client:
        yield client


@pytest.fixture
def worker(url: str) -> Iterator[None]:
    """A worker in a thread of its own, as another process would have it."""
    ready, stop = threading.Event(), threading.Event()

    async def work() -> None:
        async with open_stores(url) as stores, Worker(stores, [greeting], poll=0.05):
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert ready.wait(20)
    yield
    stop.set()
    thread.join(20)
    assert not thread.is_alive()


def asked(client: BlockingClient, run_id: str) -> None:
    while not client.approvals(run_id):
        pass


def test_a_run_is_started_decided_and_read(client: BlockingClient, worker: None):
    run = client.start(greeting, "ana", idempotency_key="one")
    asked(client, run.run_id)
    assert isinstance(client.approve(run.run_id, "editor"), Decided)
    assert run.result() == "hello ana"
    assert client.get(run.run_id).status == "completed"
    assert client.handle(run.run_id, greeting).result() == "hello ana"
    found = client.find("one", greeting)
    assert found is not None
    assert (found.run_id, found.created) == (run.run_id, False)
    assert client.find("two") is None
    assert [each.run_id for each in client.list(workflow="greeting")] == [run.run_id]


def test_threads_share_it(client: BlockingClient):
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda n: client.start(greeting, str(n), idempotency_key=f"k{n % 10}"), range(40)))
    assert len({each.run_id for each in handles}) == 10
    assert sum(each.created for each in handles) == 10


def test_errors_pass_through(client: BlockingClient):
    with pytest.raises(RunNotFoundError, match="there is no run r-9"):
        client.get("r-9")
    with pytest.raises(RunNotFoundError):
        client.handle("r-9").result()


def test_it_is_refused_where_it_would_block_a_loop(client: BlockingClient):
    async def call() -> None:
        client.get("r-9")

    with pytest.raises(InvalidTransitionError, match="await the calls of Client"):
        asyncio.run(call())


def test_a_database_that_cannot_be_opened_is_tried_again_by_the_next_call(tmp_path):
    folder = tmp_path / "later"
    with BlockingClient(f"sqlite:///{folder}/belay.db") as client:
        with pytest.raises(Exception, match=r".") as caught:
            client.list()
        assert caught.value.__class__.__module__.startswith(("belay", "builtins", "sqlite3"))
        folder.mkdir()
        assert client.list() == ()


def test_closed_it_says_so(url: str):
    client = BlockingClient(url)
    client.list()
    client.close()
    client.close()
    with pytest.raises(InvalidTransitionError, match="closed"):
        client.list()
    assert not [each for each in threading.enumerate() if each.name == "belay-client"]


def test_a_call_under_way_ends_with_the_close(client: BlockingClient):
    run = client.start(greeting, "ana")
    ended: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        async def result(inside: Client) -> None:
            waiting.set()
            await inside.result(run.run_id)

        try:
            client.run(result)
        except BaseException as error:  # noqa: BLE001
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(20)
    client.close()
    thread.join(20)
    assert [type(each) for each in ended] == [InvalidTransitionError]
    assert "closed while the call waited" in str(ended[0])
    assert isinstance(ended[0].__cause__, CancelledError)


def test_a_forked_process_goes_on_with_connections_of_its_own(client: BlockingClient):
    client.start(greeting, "parent", idempotency_key="parent")
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            run = client.start(greeting, "child", idempotency_key="child")
            os._exit(0 if run.created and client.find("parent") is not None else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.find("child") is not None
    assert len(client.list()) == 2


def test_a_call_belongs_to_the_trace_of_its_caller(client: BlockingClient):
    with recorded_spans() as spans, trace.get_tracer("shop").start_as_current_span("request") as request:
        client.start(greeting, "ana")
    traces = {span.context.trace_id for span in spans if span.context is not None}
    assert len(spans) > 1
    assert traces == {request.get_span_context().trace_id}


def test_a_call_that_ends_its_program_ends_no_other_call(client: BlockingClient):
    async def leave(inside: Client) -> None:
        await inside.list()
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        client.run(leave)
    assert client.list() == ()


def test_what_closing_raises_is_raised_by_close():
    @asynccontextmanager
    async def opened() -> AsyncGenerator[int]:
        yield 1
        raise OSError("disk")

    async def answer(resource: int) -> int:
        return resource

    thread = LoopThread(opened, "belay-test")
    assert thread.call(answer) == 1
    with pytest.raises(OSError, match="disk"):
        thread.close()
    thread.close()


def test_a_call_that_cancels_itself_is_told_from_a_close(client: BlockingClient):
    async def cancel(_: Client) -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        client.run(cancel)
    assert client.list() == ()


def test_nothing_keeps_a_closed_client(url: str):
    client = BlockingClient(url)
    client.list()
    client.close()
    gone = weakref.ref(client._thread)
    del client
    gc.collect()
    assert gone() is None
