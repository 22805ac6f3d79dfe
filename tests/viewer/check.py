"""A run's trace over a killed worker and a wait, sent by OTLP to a real viewer, read back from it and judged."""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from belay_core import Client
from belay_drivers.sqlite import open_sqlite
from tests.viewer import program, reading
from tests.viewer.phoenix import Phoenix, phoenix

PROJECT = "belay"
LETTERS, PAYMENTS = 4, 2
PATIENCE = 60.0

FIRST, KILLED = "start {} [success]", "invoke_workflow {} [acquired]"
LETTER: dict[reading.Path, int] = {
    (): 1,
    ("belay.run_store.start [started]",): 1,
    # The worker that was killed, the one that took over and asked, the one that went on with the answer.
    (KILLED,): 3,
    (KILLED, "step write [succeeded]"): 1,
    (KILLED, "step translate [succeeded]"): 1,
    (KILLED, "belay.attempt_store.record [recorded]"): 5,
    (KILLED, "belay.approval_store.ask [inserted]"): 1,
    (KILLED, "gate editor [asked]"): 1,
    (KILLED, "belay.run_store.park [parked]"): 1,
    (KILLED, "execute letter [suspended]"): 1,
    (KILLED, "gate editor [approved]"): 1,
    (KILLED, "step send [succeeded]"): 1,
    (KILLED, "belay.run_store.settle [settled]"): 1,
    (KILLED, "execute letter [completed]"): 1,
}
PAYMENT: dict[reading.Path, int] = {
    (): 1,
    ("belay.run_store.start [started]",): 1,
    # Killed inside a step that may not be done twice; taken over and parked; resumed once an operator had spoken.
    (KILLED,): 3,
    (KILLED, "belay.attempt_store.record [recorded]"): 4,
    (KILLED, "belay.run_store.park [parked]"): 1,
    (KILLED, "execute payment [suspended]"): 1,
    (KILLED, "step confirm [succeeded]"): 1,
    (KILLED, "belay.run_store.settle [settled]"): 1,
    (KILLED, "execute payment [completed]"): 1,
}
SHAPES = {"letter": LETTER, "payment": PAYMENT}


def shape(workflow: str) -> Counter[reading.Path]:
    """The tree a run of this workflow must leave, path by path."""
    return Counter(
        {tuple(word.format(workflow) for word in (FIRST, *path)): count for path, count in SHAPES[workflow].items()}
    )


class Scene:
    """Runs that are started, lose their worker inside a step, wait for a person, and are resumed by another worker."""

    def __init__(self, viewer: Phoenix, folder: Path) -> None:
        self._viewer = viewer
        self._database = str(folder / "belay.db")
        self.runs: dict[str, str] = {}
        """The workflow of every run by its id."""
        self._workers: list[subprocess.Popen[bytes]] = []

    async def play(self) -> None:
        try:
            with program.traced(self._viewer.address, PROJECT, "client"):
                async with open_sqlite(self._database) as stores:
                    await self._play(Client(stores, approver="editor@example.org"))
        finally:
            for worker in self._workers:
                worker.kill()

    async def _play(self, client: Client) -> None:
        for number in range(LETTERS):
            run = await client.start(program.letter, f"{program.SECRET} {number}")
            self.runs[run.run_id] = "letter"
        for number in range(PAYMENTS):
            run = await client.start(program.payment, number, idempotency_key=f"{program.SECRET} {number}")
            self.runs[run.run_id] = "payment"

        killed = self._worker("--hang")
        assert killed.stdout is not None
        for _ in self.runs:
            assert await asyncio.to_thread(killed.stdout.readline) == b"inside\n"
        # What it has done by now is in the viewer; what it is doing never will be.
        await until(lambda: len(self._shown("step write")) == LETTERS)
        await until(lambda: len(self._shown("belay.attempt_store.record")) == LETTERS + PAYMENTS)
        killed.kill()
        killed.wait()

        second = self._worker()
        while len(await client.list(status="suspended")) < len(self.runs):
            await asyncio.sleep(0.1)
        await self._leave(second)
        for run_id, workflow in self.runs.items():
            if workflow == "letter":
                await client.approve(run_id)
            else:
                review = (await client.get(run_id)).waiting
                assert review is not None
                word = client.happened(f"receipt {program.SECRET}")
                await client.resolve(run_id, word, step_key=review.token)
        third = self._worker()
        for run_id in self.runs:
            await client.result(run_id)
        await self._leave(third)

    def _worker(self, *more: str) -> "subprocess.Popen[bytes]":
        command = ["-m", "tests.viewer.program", self._viewer.address, PROJECT, "worker", self._database, *more]
        worker = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE)
        self._workers.append(worker)
        return worker

    async def _leave(self, worker: "subprocess.Popen[bytes]") -> None:
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, PATIENCE) == 0

    def _shown(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self._viewer.spans(PROJECT) if each["name"] == name]


async def until(true: Callable[[], bool]) -> None:
    """Look again and again until it is so."""
    end = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(true):
        if time.monotonic() > end:
            raise TimeoutError("the viewer did not show what was sent to it")
        await asyncio.sleep(0.2)


def judged(shown: list[dict[str, Any]], runs: dict[str, str]) -> tuple[dict[str, int], list[str]]:
    """The figures, and what is wrong."""
    spans = reading.seen(shown)
    faults: list[str] = []
    trees = 0
    for run_id, workflow in runs.items():
        mine = reading.of_run(spans, run_id)
        trees += len(reading.roots(mine))
        found, expected = reading.paths(mine), shape(workflow)
        faults += [f"{workflow}: too many of {path}" for path in found - expected]
        faults += [f"{workflow}: too few of {path}" for path in expected - found]
        faults += [f"{workflow}: {each.word} is about another run" for each in reading.strangers(mine, run_id)]
        epochs = sorted(each.attributes["belay.epoch"] for each in mine if each.name.startswith("invoke_workflow "))
        if epochs != [1, 2, 3]:
            faults.append(f"{workflow}: its owners were {epochs}")
    figures = {
        "spans": len(spans),
        "runs": len(runs),
        "trees": trees,
        "orphans": len(reading.orphans(spans)),
        "owners": sum(each.name.startswith("invoke_workflow ") for each in spans),
        "killed": sum(each.name.startswith("invoke_workflow ") for each in spans)
        - sum(each.name.startswith("execute ") for each in spans),
        "steps": sum(each.name.startswith("step ") for each in spans),
        "gates": sum(each.name.startswith("gate ") for each in spans),
        "store_operations": sum(each.name.startswith("belay.") for each in spans),
        "decisions": sum(each.parent_id is None for each in spans if each.name == "belay.approval_store.decide"),
        "secrets": reading.telling(shown, program.SECRET),
    }
    wanted = {
        "trees": len(runs),
        "orphans": 0,
        "owners": 3 * len(runs),
        "killed": len(runs),
        "decisions": LETTERS,
        "secrets": 0,
    }
    faults += [f"{name} is {figures[name]}, not {value}" for name, value in wanted.items() if figures[name] != value]
    return figures, faults


def settled(viewer: Phoenix) -> list[dict[str, Any]]:
    """All spans, once no more arrive."""
    before, now = -1, viewer.spans(PROJECT)
    while len(now) != before:
        time.sleep(1)
        before, now = len(now), viewer.spans(PROJECT)
    return now


def main() -> int:
    """Print the figures, and end with 0 where nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there too")
    given = parser.parse_args()
    # Told to stop, it still stops what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="belay-viewer-") as name:
        folder = Path(name)
        with phoenix(folder) as viewer:
            scene = Scene(viewer, folder)
            asyncio.run(scene.play())
            shown = settled(viewer)
    figures, faults = judged(shown, scene.runs)
    report = {**figures, "faults": len(faults), "seconds": round(time.monotonic() - began, 1)}
    for line in (*dict.fromkeys(faults), json.dumps(report)):
        sys.stdout.write(f"{line}\n")
    if given.json is not None:
        given.json.write_text(json.dumps(report) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
