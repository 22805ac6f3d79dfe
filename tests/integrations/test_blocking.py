"""The client for threads, scripts and forked processes."""

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from belay_core import Client, Decided, InvalidTransitionError, RunHandle, RunNotFoundError, Worker, open_stores
from belay_integrations.blocking import BlockingClient, BlockingRunHandle
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
    assert [type(each).__name__ for each in ended] == ["CancelledError"]


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


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_nothing_of_the_client_is_missing():
    # A transaction of SQLAlchemy's async connection has no blocking twin.
    assert public(Client) - public(BlockingClient) == {"within"}
    assert public(RunHandle) - public(BlockingRunHandle) == set()
