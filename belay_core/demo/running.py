"""One demo, from its first document to its report: starts the runs and looks at them until all of them rest."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from belay_core.client import Client
from belay_core.clock import SystemClock
from belay_core.demo.approving import Approver, AtTheTerminal, Everything, Nobody
from belay_core.demo.crew import GRACE
from belay_core.demo.crewing import Crew
from belay_core.demo.inbox import Inbox, look_into, samples, tasks_for
from belay_core.demo.keyboard import Keyboard
from belay_core.demo.killing import Killer
from belay_core.demo.places import Places, make_places, opened
from belay_core.demo.report import Report, report_on
from belay_core.demo.screen import Screen
from belay_core.demo.showing import Show
from belay_core.demo.telling import tell_interrupted, tell_places
from belay_core.demo.watching import Watch
from belay_core.demo.workflow import WORKFLOWS
from belay_core.errors import InvalidInput
from belay_core.stores.bundle import Stores
from belay_core.worker import Worker

Approving: TypeAlias = Literal["ask", "all", "none"]

MANY: Final = 100
"""Documents above which steps take less time, and workers take more runs at once."""

_WORKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the demo was asked for."""

    inbox: Path | None
    database: str | None
    approve: Approving
    kill: bool
    by: str
    keyboard: int | None
    """The file of a terminal where somebody can be asked."""
    moment_ms: int | None

    def moment_for(self, documents: int) -> int:
        """How long a slow step takes: longer where it is to be killed in."""
        if self.moment_ms is not None:
            return self.moment_ms
        if not self.kill:
            return 60
        return 240 if documents <= MANY else 120


async def demonstrate(wish: Wish, screen: Screen) -> tuple[Places, Report] | None:
    """Everything that ``belay demo`` does; None where it was interrupted."""
    inbox = look_into(samples() if wish.inbox is None else wish.inbox)
    places = make_places(wish.database)
    try:
        if wish.kill and places.is_in_memory:
            raise InvalidInput("database", "with --kill it must be one that several processes can open")
        async with opened(places.url) as stores:
            return await _demonstrate(wish, screen, inbox, places, stores)
    finally:
        with suppress(OSError):
            # Only what nothing was put in goes.
            places.folder.rmdir()


async def _demonstrate(
    wish: Wish, screen: Screen, inbox: Inbox, places: Places, stores: Stores
) -> tuple[Places, Report] | None:
    clock, client = SystemClock(), Client(stores)
    began = clock.elapsed()
    tell_places(screen, places)
    with _told_to_stop() as stop, _keyboard(wish.keyboard) as keyboard:
        batch, moment = stores.ids.new(), wish.moment_for(len(inbox.documents))
        tasks = await asyncio.to_thread(tasks_for, inbox, places.ledger, places.filed, batch=batch, moment_ms=moment)
        _say_what_comes(screen, inbox)
        watch = Watch(client)
        async with _workers(wish, places, stores, len(tasks)) as crew:
            killer = None if crew is None else Killer(crew, client, watch, clock, len(tasks))
            show = Show(client, watch, screen, tasks, _approver(wish, client, keyboard, screen), crew, killer)
            await show.go_on(clock, stop)
        await watch.look()
        if stop.is_set():
            tell_interrupted(screen, places, len(watch.moving), len(tasks) - len(show.started))
            return None
        histories = [await client.history(run_id) for run_id in watch.runs]
    kills = () if killer is None else killer.kills
    seconds = (clock.elapsed() - began) / 1000
    return places, await asyncio.to_thread(report_on, histories, show.started, kills, places.ledger, seconds)


def _say_what_comes(screen: Screen, inbox: Inbox) -> None:
    left_out = f", and folders, which are left out: {inbox.folders}" if inbox.folders else ""
    screen.say(f"documents in {inbox.folder}: {len(inbox.documents)}{left_out}")


@asynccontextmanager
async def _workers(wish: Wish, places: Places, stores: Stores, documents: int) -> AsyncGenerator[Crew | None]:
    """Whoever does the work: this very process, or a crew of processes that may be killed."""
    if not wish.kill:
        async with Worker(stores, WORKFLOWS, concurrency=32, grace=GRACE):
            yield None
        return
    # Few runs at once in each, so that a kill leaves most of the documents to the others.
    concurrency = 2 if documents <= MANY else 6
    async with Crew(places, SystemClock(), size=_WORKERS, concurrency=concurrency) as crew:
        yield crew


def _approver(wish: Wish, client: Client, keyboard: Keyboard | None, screen: Screen) -> Approver:
    if wish.approve == "all":
        return Everything(client)
    if wish.approve == "none" or keyboard is None:
        return Nobody()
    return AtTheTerminal(client, keyboard, screen, wish.by)


@contextmanager
def _keyboard(file: int | None) -> Generator[Keyboard | None]:
    if file is None:
        yield None
        return
    with Keyboard(file) as keyboard:
        yield keyboard


@contextmanager
def _told_to_stop() -> Generator[asyncio.Event]:
    """Set once somebody presses Ctrl-C or ends this process."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
            stack.callback(loop.remove_signal_handler, number)
        yield stop
