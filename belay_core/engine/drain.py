"""One owner's stretch of work on a run, from acquisition to settling, parking or losing it (kernel 13, 15, 21).

Read ``run`` first: it plays the body, ends the play in one of the ways of ``End``, and closes accordingly.
"""

import asyncio
from enum import Enum
from typing import Any

from belay_core.commands import History, RunHistory
from belay_core.engine.answering import Review
from belay_core.engine.closing import Closing
from belay_core.engine.conducting import PlayConductor
from belay_core.engine.holding import Holding, HoldLost
from belay_core.engine.play import Play
from belay_core.engine.services import Services
from belay_core.engine.unwinding import forget, unwind
from belay_core.errors import StoreError, ValueRefused
from belay_core.limits import TAKEOVERS_WITHOUT_PROGRESS
from belay_core.moments import event_or_time
from belay_core.outcomes.engine import Acquired
from belay_core.records.workflow_run import Waiting
from belay_core.workflows.caught import caught
from belay_core.workflows.context import Context
from belay_core.workflows.definition import Definition
from belay_core.workflows.middleware import DrainFacts

_UNREADABLE = Review("undecodable", None, "what is recorded of it cannot be read")


class End(Enum):
    """How a play ended."""

    FINISHED = "finished"
    IDLE = "idle"
    CANCELLED = "cancelled"
    LEFT = "left"
    REVIEW = "review"
    LOST = "lost"


class Drain:
    """Works on one run under one lease."""

    def __init__(
        self,
        services: Services,
        acquired: Acquired,
        history: RunHistory | None,
        definition: Definition[Any, Any],
    ) -> None:
        self.holding = Holding(services, acquired.lease, acquired.run.cancel_requested_at_ms)
        self._services = services
        self._run = acquired.run
        self._history = history
        """What is recorded of the run; None where it has yet to be read."""
        self._definition = definition
        self._closing = Closing(services, self.holding, definition)
        self._idle: asyncio.Task[int] | None = None
        """Watches for the play to be idle, from the first moment at which it may be."""
        self._leaving = False
        self._grace_over = False

    async def run(self) -> str:
        """Work until the run is settled, parked or lost; the word for which of them it was."""
        run, lease = self._run, self.holding.lease
        facts = DrainFacts(run.run_id, self._definition.name, lease.epoch, lease.owner.host_id, run.trace)
        outcome = "failure"
        with self._services.watchers.drain(facts) as close:
            try:
                with self._services.stores.wakes.listening(run.run_id, self.holding.signal):
                    outcome = await self._until_closed()
            except HoldLost:
                outcome = "fence_lost"
            finally:
                close(outcome)
        return outcome

    def leave(self) -> None:
        """Begin nothing new, and let the run go when its running steps have ended."""
        self._leaving = True
        self.holding.signal.set()

    def end_grace(self) -> None:
        """Cut what still runs, and let the run go."""
        self._grace_over = True
        self.holding.signal.set()

    async def _until_closed(self) -> str:
        history = self._history or await self._read()
        while (outcome := await self._once(history)) is None:
            history = await self._read()
        return outcome

    async def _once(self, history: RunHistory | None) -> str | None:
        """Play the body and close; None where there are news, and everything is to be played again."""
        if self._run.takeovers >= TAKEOVERS_WITHOUT_PROGRESS:
            review = Review("poison", None, "its owners died one after the other, and nothing was recorded")
            return await self._closing.park_for_review(review, ())
        if self.holding.cancel_requested:
            return await self._closing.cancelled(())
        if history is None:
            return await self._closing.park_for_review(_UNREADABLE, ())
        return await self._play(Play(self._services, self.holding, history))

    async def _play(self, play: Play) -> str | None:
        play.held = self._leaving
        play.root.task = body = asyncio.create_task(caught(lambda: self._body(play)))
        try:
            end = await self._supervise(play, body)
            waits = play.board.waits_now()
            await unwind(play, body, let_steps_end=end is not End.CANCELLED, hurry=lambda: self._grace_over)
        except BaseException:
            await unwind(play, body, let_steps_end=False, hurry=lambda: True)
            raise
        finally:
            forget(play, body)
        try:
            return await self._close(end, play, body, waits)
        finally:
            play.broken = None  # its frames hold the play

    async def _body(self, play: Play) -> Any:
        """The author's body with its decoded input."""
        try:
            given = self._definition.input_codec.decode(play.run.input or "null")
        except ValueRefused as refused:
            play.review = Review("undecodable", None, f"input: {refused}")
            self.holding.signal.set()
            return await play.never()
        return await self._definition.body(Context(PlayConductor(play), play.root), given)

    async def _supervise(self, play: Play, body: "asyncio.Task[Any]") -> End:
        """Watch over a play until it ends; whatever may end it sets the signal."""
        signal = self.holding.signal
        body.add_done_callback(self._ended)
        play.board.on_rest = lambda: self._watch_idle(play)
        try:
            while True:
                await signal.wait()
                if (end := self._end(play, body)) is not None:
                    return end
                if self._idle is not None and self._idle.done():
                    # Something has happened since; a run is parked only where nothing has.
                    self._watch_idle(play)
                signal.clear()
                play.held = self._leaving
                await self._look(play)
        finally:
            body.remove_done_callback(self._ended)
            play.board.on_rest = None
            if self._idle is not None:
                self._idle.remove_done_callback(self._ended)
                self._idle.cancel()
                self._idle = None
            play.board.stop()

    def _watch_idle(self, play: Play) -> None:
        self._idle = asyncio.create_task(self._idle_for_good(play))
        self._idle.add_done_callback(self._ended)

    def _ended(self, _task: object) -> None:
        self.holding.signal.set()

    def _end(self, play: Play, body: "asyncio.Task[Any]") -> End | None:
        if self.holding.lost:
            return End.LOST
        if self.holding.cancel_requested:
            return End.CANCELLED
        if play.review is not None:
            return End.REVIEW
        if body.done():
            return End.FINISHED
        if self._grace_over:
            return End.LEFT
        idle = self._idle
        if idle is None or not idle.done() or idle.result() != play.board.moves:
            return None
        held_back = any(wait.reason == "released" for wait in play.board.waits_now())
        return End.LEFT if held_back else End.IDLE

    async def _look(self, play: Play) -> None:
        """Something was signalled: if it is news, read them; if it is a poke, ask for news first."""
        if not self.holding.has_news and any(call.waiting for call in play.board.calls.values()):
            await self.holding.renew()
        if not self.holding.has_news:
            return
        history = await self._read()
        if history is not None:
            play.arrived(history)
        elif play.review is None:
            play.review = _UNREADABLE
            self.holding.signal.set()

    async def _idle_for_good(self, play: Play) -> int:
        """Come back when the run has been idle for as long as it may stay in memory, or at once when leaving.

        Gives the count of what has happened until then.
        """
        board, clock = play.board, self._services.stores.clock
        while True:
            await board.idle()
            moves = board.moves
            linger = 0.0 if self._leaving else self._services.settings.linger
            if linger:
                board.changed.clear()
                await event_or_time(board.changed, clock, linger)
            if board.moves == moves:
                return moves

    async def _close(self, end: End, play: Play, body: "asyncio.Task[Any]", waits: list[Waiting]) -> str | None:
        notes = tuple(play.notes)
        match end:
            case End.LOST:
                raise HoldLost
            case End.CANCELLED:
                return await self._closing.cancelled(notes)
            case End.REVIEW if play.review is not None:
                return await self._closing.park_for_review(play.review, notes)
            case End.LEFT:
                return await self._closing.released(notes)
            case End.FINISHED:
                return await self._closing.finished(play, body)
            case _:
                return await self._closing.parked(waits, notes)

    async def _read(self) -> RunHistory | None:
        """Read the run, however long the database cannot be reached; None where what is recorded makes no sense.

        What had been news before the reading is seen then.
        """
        run_id = self.holding.lease.run_id
        try:
            found = await self.holding.send(self._services.stores.engine.history, History((run_id,)))
        except StoreError:
            await self.holding.renew()
            self.holding.seen_ms = self.holding.news_ms
            return None
        if not found:
            self.holding.lose()
            raise HoldLost
        self._run = found[0].run
        self.holding.seen_ms = self.holding.news_ms = found[0].run.ready_at_ms
        if found[0].run.cancel_requested_at_ms is not None:
            self.holding.cancel_requested = True
            self.holding.signal.set()
        return found[0]
