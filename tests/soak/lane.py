"""One database of a soak: its workers, what happens to them, and the people who use it."""

import asyncio
import itertools
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from belay_core import BelayError, Client, open_stores
from belay_core.records.commands import RunHistory
from belay_core.stores import Stores
from tests.soak.flows import soak
from tests.soak.judge import Operator, Verdict, judge, read_ledger
from tests.soak.people import decide_gates, resolve_reviews

WORKERS = 3
STEPS_MS = (-120_000, -60_000, 60_000, 120_000)
"""By how much a wall clock is stepped: more than a lease, and less than the patience: waits are times of day."""
FROZEN = (33.0, 38.0)
"""Seconds for which a process is stopped: longer than a lease."""
LEAVES_WITHIN = 15.0
"""Seconds after SIGTERM: the grace of two, five more, and what a busy machine adds."""
PATIENCE = 180.0
"""Seconds in which every run ends once nothing happens to its workers any more."""
EVERY = (0.5, 3.0)
"""Seconds between two faults."""

Fault = Callable[[], Awaitable[None]]


class Lane:
    """Runs are started, executed by processes that come to harm, and judged at the end."""

    def __init__(self, name: str, folder: Path, url: str, workers_url: str, rate: float, seed: int) -> None:
        self.name = name
        self.faults: Counter[str] = Counter()
        self.operator = Operator()
        self.late_exits: list[str] = []
        self.complaints: Counter[str] = Counter()
        """Errors that people met, by type: they tried again."""
        self._folder = folder
        self._url, self._workers_url = url, workers_url
        self._rate = rate
        self._rng = random.Random(seed)  # noqa: S311  (the same faults for the same seed)
        self._workers: list[asyncio.subprocess.Process] = []
        self._more: dict[str, Fault] = {}
        self._aside: set[asyncio.Task[None]] = set()
        folder.mkdir()
        (folder / "clock").write_text("0".ljust(16))

    def add(self, name: str, fault: Fault) -> None:
        """A further fault that may happen to this lane."""
        self._more[name] = fault

    async def soaked(self, seconds: float) -> tuple[Verdict, dict[str, RunHistory]]:
        """Let it run for so long with faults, then until all has ended; and judge."""
        async with open_stores(self._url) as stores:
            client = Client(stores, approver="clerk", telemetry=False)
            for _ in range(WORKERS):
                await self._hire()
            people = asyncio.create_task(self._use(client))
            starting = asyncio.create_task(self._start_runs(client))
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._harm()
            starting.cancel()
            (self._folder / "clock").write_text("0".ljust(16))
            await asyncio.gather(*self._aside)
            await self._rest(client)
            people.cancel()
            await asyncio.gather(people, starting, return_exceptions=True)
            for worker in list(self._workers):
                await self._dismiss(worker)
            histories = await self._histories(stores)
        return judge(read_ledger(self._folder / "ledger"), histories, self.operator), histories

    async def _hire(self) -> None:
        with (self._folder / "log").open("ab") as log:
            worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.soak.worker", self._workers_url, str(self._folder), stdout=log, stderr=log
            )
        self._workers.append(worker)

    async def _harm(self) -> None:
        faults: dict[str, Fault] = {
            "kill": self._kill,
            "leave": self._leave,
            "freeze": self._freeze,
            "clock": self._step_clock,
            **self._more,
        }
        while True:
            await asyncio.sleep(self._rng.uniform(*EVERY))
            name = self._rng.choice(list(faults))
            self.faults[name] += 1
            await faults[name]()
            for worker in [each for each in self._workers if each.returncode is not None]:
                # One that ended by itself: it could not open its stores, or gave up.
                self._workers.remove(worker)
                self.faults["ended_by_itself"] += 1
                await self._hire()

    async def _kill(self) -> None:
        worker = self._rng.choice(self._workers)
        self._workers.remove(worker)
        with suppress(ProcessLookupError):
            worker.kill()
        await worker.wait()
        await self._hire()

    async def _leave(self) -> None:
        worker = self._rng.choice(self._workers)
        await self._hire()
        await self._dismiss(worker)

    async def _dismiss(self, worker: asyncio.subprocess.Process) -> None:
        self._workers.remove(worker)
        # Until its handlers are installed a signal just ends it.
        with suppress(ProcessLookupError):
            worker.terminate()
        try:
            await asyncio.wait_for(worker.wait(), LEAVES_WITHIN)
        except TimeoutError:
            self.late_exits.append(f"process {worker.pid} had not left after {LEAVES_WITHIN} s")
            worker.kill()
            await worker.wait()

    async def _freeze(self) -> None:
        if self._aside or len(self._workers) < WORKERS:
            return
        worker = self._rng.choice(self._workers)
        self._workers.remove(worker)
        await self._hire()
        task = asyncio.create_task(self._frozen(worker))
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def _frozen(self, worker: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGSTOP)
            await asyncio.sleep(self._rng.uniform(*FROZEN))
            os.kill(worker.pid, signal.SIGCONT)
            self._workers.append(worker)
            await asyncio.sleep(5)
            if worker in self._workers and len(self._workers) > WORKERS:
                await self._dismiss(worker)

    async def _step_clock(self) -> None:
        (self._folder / "clock").write_text(str(self._rng.choice(STEPS_MS)).ljust(16))
        await asyncio.sleep(self._rng.uniform(0, 2))
        if self._rng.random() < 0.7:
            (self._folder / "clock").write_text("0".ljust(16))

    async def _start_runs(self, client: Client) -> None:
        for seed in itertools.count(1):
            run = await self._started(client, seed)
            self.operator.started[run] = seed
            await asyncio.sleep(self._rng.expovariate(self._rate))

    async def _started(self, client: Client, seed: int) -> str:
        """Start a run until that is acknowledged."""
        while True:
            try:
                return (await client.start(soak, seed, idempotency_key=f"{self.name}-{seed}")).run_id
            except BelayError as error:
                self.complaints[type(error).__name__] += 1
                await asyncio.sleep(0.2)

    async def _use(self, client: Client) -> None:
        while True:
            await asyncio.sleep(0.3)
            try:
                await decide_gates(client, self.operator)
                await resolve_reviews(client, self.operator, self._folder / "ledger")
            except BelayError as error:
                self.complaints[type(error).__name__] += 1

    async def _rest(self, client: Client) -> None:
        """Until no run is under way, or the patience is at an end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    with suppress(BelayError):
                        live = [
                            run
                            for status in ("pending", "running", "suspended")
                            for run in await client.list(status=status, limit=1)
                        ]
                        if not live:
                            return
                    await asyncio.sleep(0.5)

    async def _histories(self, stores: Stores) -> dict[str, RunHistory]:
        client = Client(stores, telemetry=False)
        found: dict[str, RunHistory] = {}
        for run in self.operator.started:
            with suppress(BelayError):
                found[run] = await client.history(run)
        return found
