"""What a reader has to follow to understand one step, and one decision: functions entered, files, changes of file."""

import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from belay_core import Client, Context, Worker, open_stores, step, workflow

ROOT = str(Path(__file__).parents[2])
PACKAGES = tuple(f"{ROOT}/{package}/" for package in ("belay_core", "belay_drivers"))


class Walk:
    """The functions of belay that are entered, in their order, while it is open; a frame that goes on counts once."""

    def __init__(self):
        self.entered = []
        self.open = False
        self._frames = {}

    def __call__(self, frame, event, _arg):
        if event != "call" or id(frame) in self._frames:
            return
        # Kept, so that no other frame gets its id.
        self._frames[id(frame)] = frame
        code = frame.f_code
        if self.open and code.co_filename.startswith(PACKAGES):
            self.entered.append((code.co_filename, code.co_firstlineno))

    @property
    def figures(self):
        files = [file for file, _ in self.entered]
        changes = sum(1 for one, other in pairwise(files) if one != other)
        return {"functions": len(set(self.entered)), "files": len(set(files)), "changes": changes}


@pytest.fixture(params=["memory", "postgres"])
async def url(request):
    if request.param == "memory":
        return "sqlite://"
    handle = request.getfixturevalue("belay_postgres")
    async with handle:
        return handle.url


@pytest.fixture
def path():
    """Profiles this thread and those that begin later, as the writing one does."""
    path = Walk()
    threading.setprofile(path)
    sys.setprofile(path)
    yield path
    sys.setprofile(None)
    threading.setprofile(None)


@step(idempotent=True)
async def work(number: int) -> int:
    return number


def beyond(figures, **most):
    return {name: figures[name] for name, limit in most.items() if figures[name] > limit}


async def test_one_step_enters_few_functions_and_files(url, path):
    """A recorded idempotent step between others, at default settings."""

    @workflow("flow")
    async def flow(ctx: Context) -> None:
        await ctx.step(work, 1)
        path.open = warm
        await ctx.step(work, 2)
        path.open = False
        await ctx.step(work, 3)

    warm = False
    async with open_stores(url) as stores:
        client = Client(stores)
        async with Worker(stores, [flow]):
            await (await client.start(flow)).result()
            warm = True
            await (await client.start(flow)).result()
    assert path.entered
    assert beyond(path.figures, functions=90, files=24, changes=45) == {}, path.figures


async def test_one_decision_enters_few_functions(url, path):
    @workflow("asking")
    async def asking(ctx: Context) -> None:
        await ctx.gate("editor", subject=1)

    async with open_stores(url) as stores:
        client = Client(stores, approver="ada")
        async with Worker(stores, [asking], background=False) as worker:
            for open_now in (False, True):
                run = await client.start(asking)
                await worker.dispatcher.take()
                await worker.dispatcher.finish_all()
                [approval] = await client.approvals(run)
                path.open = open_now
                await client.decide(approval, "approved")
                path.open = False
    assert path.entered
    assert beyond(path.figures, functions=80) == {}, path.figures
