"""Stores serve the event loop and process that opened them, until they are closed; elsewhere one error says so."""

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from belay_core import Client, StoresUnusable, Worker, workflow
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import OwnerId
from belay_core.stores import Stores
from belay_drivers.sqlite import open_sqlite

START = commands.Start(RunId("other"), "w", "1", "1")


@workflow
async def greet(ctx, name: str) -> str:
    return f"hello {name}"


async def write(stores: Stores) -> object:
    async def body(tx: Any) -> None:
        await tx.runs.find(RunId("r"))

    return await stores.write(body)


async def snapshot(stores: Stores) -> object:
    async with stores.snapshot() as reads:
        return await reads.get(RunId("r"))


async def result(stores: Stores) -> object:
    return await Client(stores).handle(RunId("r")).result()


async def work(stores: Stores) -> object:
    await Worker(stores, [greet], telemetry=False).run()
    return None


CALLS: dict[str, Callable[[Stores], Awaitable[object]]] = {
    "find": lambda stores: stores.runs.find(RunId("r")),
    "start": lambda stores: stores.runs.start(START),
    "list": lambda stores: stores.runs.list(commands.ListRuns()),
    "wake": lambda stores: stores.runs.wake(commands.Wake()),
    "changes": lambda stores: stores.changes.current(),
    "write": write,
    "snapshot": snapshot,
    "client": lambda stores: Client(stores).start(greet, "Ada"),
    "result": result,
    "worker": work,
}


async def refused(call: Callable[[Stores], Awaitable[object]], stores: Stores) -> str:
    with pytest.raises(StoresUnusable) as failure:
        async with asyncio.timeout(10):
            await call(stores)
    return failure.value.state


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_from_another_event_loop_is_refused_and_the_owner_goes_on(belay_each_store, name):
    async with belay_each_store as stores:
        await Client(stores).start(greet, "Ada", run_id="r")
        assert await asyncio.to_thread(asyncio.run, refused(CALLS[name], stores)) == "other_loop"
        assert [run.run_id for run in (await stores.runs.list(commands.ListRuns()))] == ["r"]
        await stores.runs.start(START)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_after_the_end_is_refused(belay_each_store, name):
    async with belay_each_store as stores:
        await stores.runs.start(START)
    assert await refused(CALLS[name], stores) == "closed"


async def test_a_call_in_a_forked_process_is_refused_and_the_parent_goes_on(belay_each_store):
    async with belay_each_store as stores:
        await stores.runs.start(START)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            # The loop of the parent is still set as the running one.
            asyncio._set_running_loop(None)
            try:
                os._exit(0 if asyncio.run(refused(CALLS["find"], stores)) == "other_process" else 1)
            finally:
                os._exit(2)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        assert await stores.runs.find(RunId("other")) is not None


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


@pytest.mark.parametrize("change", [delete, replace])
async def test_a_file_that_is_gone_or_replaced_is_noticed_by_the_next_renewal(tmp_path, change):
    path = tmp_path / "belay.db"
    async with open_sqlite(path) as stores:
        await stores.runs.start(START)
        [taken] = await stores.runs.acquire(commands.Acquire(OwnerId("host", 1, "n"), ("w",), 1, ()))
        await stores.runs.renew(commands.Renew((taken.lease,)))
        change(path)
        assert await refused(lambda own: own.runs.renew(commands.Renew((taken.lease,))), stores) == "replaced"


@pytest.mark.parametrize("change", [delete, replace])
@pytest.mark.parametrize("busy", [False, True])
async def test_a_worker_stops_with_the_error_of_a_file_that_is_gone_or_replaced(tmp_path, change, busy):
    path, begun = tmp_path / "belay.db", asyncio.Event()

    @workflow
    async def hang(ctx) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with open_sqlite(path) as stores:
        worker = Worker(stores, [hang], concurrency=1, poll=0.01, telemetry=False)
        if busy:
            await Client(stores).start(hang)
        else:
            begun.set()
        ready = asyncio.Event()
        working = asyncio.ensure_future(worker.run(ready.set))
        await ready.wait()
        await begun.wait()
        change(path)

        async def ended(_stores: Stores) -> None:
            await working

        assert await refused(ended, stores) == "replaced"
