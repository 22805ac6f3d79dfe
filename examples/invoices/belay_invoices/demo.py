"""One demo, from its first document to its report: starts the runs, kills workers, and watches until all runs rest."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TextIO, TypeAlias

from belay_core import Client, InvalidInput, Stores, Worker
from belay_core.errors import StoreError
from belay_invoices.approver import ApproveAll, ApproveNothing, Approver, AskAtTerminal
from belay_invoices.booking import Task
from belay_invoices.documents import Inbox, read_inbox, samples, tasks_for
from belay_invoices.killer import Kill, Killer
from belay_invoices.report import Report, make_report, print_interruption, print_report
from belay_invoices.run_watch import RunWatch, is_at_rest, state_of
from belay_invoices.terminal import Keyboard, Screen
from belay_invoices.workers import GRACE, WorkerPool
from belay_invoices.workflow import WORKFLOWS, accounts_payable
from belay_invoices.workspace import VARIABLE, Workspace, make_workspace, open_database

Approve: TypeAlias = Literal["ask", "all", "none"]

_STDIN: Final = 0
_MANY: Final = 100
"""Documents above which steps take less time, and workers execute more runs at once."""
_WORKERS: Final = 2
_TICK: Final = 0.025
_REFRESH_MS: Final = 100.0
_REFRESH_MS_PER_RUN: Final = 1.0
_STARTS_PER_TICK: Final = 25
_MAX_FAILURES: Final = 20
_STATES: Final = {"approval": "waits for approval", "needs_review": "needs an operator's review"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of ``belay demo``."""

    inbox: Path | None
    database: str | None
    approve: Approve
    kill: bool
    by: str
    step_ms: int | None

    def step_ms_for(self, documents: int) -> int:
        """How long a slow step takes, in milliseconds: longer with ``--kill``, which has to hit it."""
        if self.step_ms is not None:
            return self.step_ms
        if not self.kill:
            return 60
        return 240 if documents <= _MANY else 120


def demonstrate(options: Options, stream: TextIO) -> Report | None:
    """Everything that ``belay demo`` does, and its report; None where it was interrupted. People read the stream."""
    screen = Screen(stream)
    try:
        return asyncio.run(_demonstrate(options, screen))
    finally:
        screen.close()


async def _demonstrate(options: Options, screen: Screen) -> Report | None:
    inbox = read_inbox(samples() if options.inbox is None else options.inbox)
    workspace = make_workspace(options.database)
    try:
        if options.kill and workspace.is_in_memory:
            raise InvalidInput("database", "with --kill it must be one that several processes can open")
        async with open_database(workspace.url) as stores:
            report = await _run(options, screen, inbox, workspace, stores)
        if report is not None:
            print_report(screen, workspace, report)
        return report
    finally:
        with suppress(OSError):
            # Removed only if it is empty.
            workspace.folder.rmdir()


async def _run(options: Options, screen: Screen, inbox: Inbox, workspace: Workspace, stores: Stores) -> Report | None:
    began = stores.clock.elapsed()
    client = Client(stores)
    watch = RunWatch(client)
    killer = None
    with _stop_signals() as stop, _keyboard(screen) as keyboard:
        _print_start(screen, inbox, workspace)
        step_ms = options.step_ms_for(len(inbox.documents))
        tasks = await asyncio.to_thread(
            tasks_for, inbox, workspace.ledger, workspace.filed, batch=stores.ids.new(), step_ms=step_ms
        )
        async with _workers(options, workspace, stores, len(tasks)) as workers:
            if workers is not None:
                killer = Killer(workers, client, watch, stores, len(tasks))
            approver = _approver(options, client, keyboard, screen)
            demo = Demo(client, watch, screen, tasks, approver, workers, killer)
            await demo.run(stores, stop)
        await watch.refresh()
        if stop.is_set():
            print_interruption(screen, workspace, len(watch.moving), len(tasks) - len(demo.started))
            return None
        histories = [await client.history(run_id) for run_id in watch.runs]
    seconds = (stores.clock.elapsed() - began) / 1000
    return await asyncio.to_thread(make_report, histories, demo.started, killer, workspace.ledger, seconds)


class Demo:
    """Everything between the start of the first run and the moment when the last one rests."""

    def __init__(
        self,
        client: Client,
        watch: RunWatch,
        screen: Screen,
        tasks: Sequence[Task],
        approver: Approver,
        workers: WorkerPool | None,
        killer: Killer | None,
    ) -> None:
        self._client = client
        self._watch = watch
        self._screen = screen
        self._tasks = tasks
        self._approver = approver
        self._workers = workers
        self._killer = killer
        self._shown_states: dict[str, str] = {}
        self._shown_takeovers = 0
        self.started: dict[str, Task] = {}
        """The task of each run that was started, by run id."""

    async def run(self, stores: Stores, stop: asyncio.Event) -> None:
        """Return when all runs rest and no decision can come any more, or when ``stop`` is set."""
        clock = stores.clock
        failures, refreshed = 0, float("-inf")
        while not stop.is_set():
            try:
                await self._start_some()
                await self._kill_one()
                if clock.elapsed() - refreshed >= max(_REFRESH_MS, _REFRESH_MS_PER_RUN * len(self.started)):
                    refreshed = clock.elapsed()
                    await self._refresh()
                    if self._is_over():
                        return
                failures = 0
            except StoreError:
                # A busy database is no reason to give up; one that stays away is.
                failures += 1
                if failures == _MAX_FAILURES:
                    raise
            await clock.sleep(_TICK)

    async def _start_some(self) -> None:
        allowed = len(self._tasks) if self._killer is None else self._killer.allowed
        for task in self._tasks[len(self.started) : min(allowed, len(self.started) + _STARTS_PER_TICK)]:
            # The position, not the name: a name may be longer than a key may be.
            key = f"demo/{task.batch}/{len(self.started)}"
            run = await self._client.start(accounts_payable, task, idempotency_key=key)
            self.started[run.run_id] = task
            self._watch.runs[run.run_id] = None

    async def _kill_one(self) -> None:
        if self._killer is None:
            return
        kill = await self._killer.kill_one()
        self._print_takeovers(self._killer)
        if kill is not None:
            self._print_kill(kill)

    async def _refresh(self) -> None:
        """Read the state of all runs, and act on it."""
        await self._watch.refresh()
        if self._workers is not None:
            self._workers.restart_failed()
        if self._killer is not None:
            self._killer.record_takeovers()
            self._print_takeovers(self._killer)
        self._print_progress()
        await self._approver.decide(self._watch.at_gate)

    def _is_over(self) -> bool:
        if self._watch.moving or any(self._approver.may_decide(run.run_id) for run in self._watch.at_gate):
            return False
        if self._killer is not None and len(self.started) == self._killer.allowed < len(self._tasks):
            self._killer.skip()
        return len(self.started) == len(self._tasks)

    def _print_kill(self, kill: Kill) -> None:
        runs = ", ".join(
            f"{self.started[each.run_id].name} ({f'in step {each.step}' if each.step else 'in no step'})"
            for each in kill.interruptions
        )
        self._screen.write(f"killed worker {kill.pid} while it worked on {runs}")

    def _print_takeovers(self, killer: Killer) -> None:
        takeovers = [
            (each.at_ms + each.taken_over_after_ms, each.taken_over_after_ms, each)
            for each in killer.interruptions
            if each.taken_over_after_ms is not None
        ]
        takeovers.sort(key=lambda takeover: takeover[0])
        for _, after_ms, each in takeovers[self._shown_takeovers :]:
            worker = "another worker" if each.taken_over_by is None else f"worker {each.taken_over_by}"
            name = self.started[each.run_id].name
            self._screen.write(f"{worker} has taken over {name}, {after_ms / 1000:.1f} s after the kill")
        self._shown_takeovers = len(takeovers)

    def _print_progress(self) -> None:
        at_rest = {run_id: state_of(run) for run_id, run in self._watch.runs.items() if run and is_at_rest(run)}
        for run_id, state in at_rest.items():
            if self._shown_states.get(run_id) != state:
                self._shown_states[run_id] = state
                self._screen.write(f"{self.started[run_id].name}: {_STATES.get(state, state)}")
        self._screen.show_progress(len(at_rest), len(self._tasks))


def _print_start(screen: Screen, inbox: Inbox, workspace: Workspace) -> None:
    """Where everything is: of use while the demo runs."""
    screen.write(f"everything is in {workspace.folder}")
    if workspace.has_password:
        screen.write(f"the commands below expect {VARIABLE} to hold the database's URL")
    screen.write(f"from another terminal: {workspace.command('approvals')}")
    left_out = f", and folders, which are left out: {inbox.folders}" if inbox.folders else ""
    screen.write(f"documents in {inbox.folder}: {len(inbox.documents)}{left_out}")


@asynccontextmanager
async def _workers(
    options: Options, workspace: Workspace, stores: Stores, documents: int
) -> AsyncGenerator[WorkerPool | None]:
    """What executes the runs: a worker in this process, or, with ``--kill``, processes that can be killed."""
    if not options.kill:
        async with Worker(stores, WORKFLOWS, concurrency=32, grace=GRACE):
            yield None
        return
    # Few runs at once in each, so that a kill leaves most of the documents to the others.
    concurrency = 2 if documents <= _MANY else 6
    async with WorkerPool(workspace, stores, size=_WORKERS, concurrency=concurrency) as workers:
        yield workers


def _approver(options: Options, client: Client, keyboard: Keyboard | None, screen: Screen) -> Approver:
    if options.approve == "all":
        return ApproveAll(client)
    if options.approve == "none" or keyboard is None:
        return ApproveNothing()
    return AskAtTerminal(client, keyboard, screen, options.by)


def _keyboard(screen: Screen) -> Keyboard | nullcontext[None]:
    """The keyboard of the person who reads the screen, where there is one."""
    return Keyboard(_STDIN) if screen.is_terminal and os.isatty(_STDIN) else nullcontext()


@contextmanager
def _stop_signals() -> Generator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
            stack.callback(loop.remove_signal_handler, number)
        yield stop
