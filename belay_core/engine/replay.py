"""Which calls are open, and which answer the author's code is given next (kernel 13 and 15).

The author's code sees one answer at a time, in the order in which they were recorded. A recorded answer is due when
every call is open that the records say was open before it (``recorded_order``); where the records say nothing, when the
code has opened its next calls or shows no sign of doing so.
"""

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Any, cast

from belay_core.clock import Clock, Millis, Signal, event_or_time
from belay_core.engine.loop_iterations import LoopIterations
from belay_core.engine.recorded_order import ASKED, CODE, OPENED, RecordedOrder
from belay_core.records.attempt import JsonValue
from belay_core.records.step_record import SCHEMA, StepRecord
from belay_core.records.workflow_run import RunWait
from belay_core.values import json
from belay_core.workflows.scope import Scope

_TURNS = 12
"""Turns of the event loop after which code that holds several open calls counts as having done what it does."""
_PATIENT_TURNS = 20_000
"""Turns of the event loop that a recorded call is waited for where no time passes by itself."""


class Call:
    """One open ``ctx`` call: it works until it says that it waits."""

    __slots__ = ("asked", "given_up", "inline", "key", "opened", "place", "scope", "task", "waiting")

    def __init__(self, key: str, scope: Scope, task: "asyncio.Task[Any] | None") -> None:
        self.key = key
        self.scope = scope
        self.task = task
        """The author's task that awaits the answer; None once the call is closed."""
        self.inline = task is scope.task
        self.asked = 0
        """The place of the last answer that was given when it was opened."""
        self.waiting: RunWait | None = None
        self.given_up = False
        """Set once the author no longer waits for the answer."""
        self.place: int | None = None
        """The place at which the author went on without waiting for the end of what it gave up."""
        self.opened = 0
        """How many calls had been opened when its answer got its place."""


class ReplayScheduler:
    """The open calls and scopes of one execution of a body."""

    def __init__(
        self, clock: Clock, quiet: float, iterations: LoopIterations, order: RecordedOrder, patience: float = 0.0
    ) -> None:
        self.order = order
        self.last = 0
        """The place of the last answer that was given."""
        self.on_missing: Callable[[str], bool] = _go_on
        """Called with a recorded call that is not opened again; whether to go on without it."""
        self._patience_ms = patience * 1000
        self.calls: dict[str, Call] = {}
        self.changed = Signal()
        """Set by everything that happens here."""
        self._resting = asyncio.Event()
        """Set by what may have left the run idle."""
        self.on_rest: Callable[[], None] | None = None
        """Called once, as soon as the run may be idle for the first time; most runs never are."""
        self.moves = 0
        """Counts everything that happens here."""
        self._clock = clock
        self._quiet_ms = quiet * 1000
        self._busy: dict[Scope, tuple[float, int]] = {}
        self._iterations = iterations
        self._looking: list[asyncio.Future[None]] = []
        """Who waits for turns of the loop."""
        self._ready: list[tuple[int, int, Call, Millis, asyncio.Future[Any], object]] = []
        self._allotted: dict[Call, int] = {}
        """Places of answers that are being recorded or wait for their turn, the smallest one first."""
        self._advanced = asyncio.Event()
        """Set when an answer gets ready, or a place is given up."""
        self._count = 0
        self._pump: asyncio.Task[None] | None = None
        self._working = 0

    def open_scope(self, scope: Scope) -> None:
        """The scope is busy from now on."""
        self._touch(scope)

    def close_scope(self, scope: Scope) -> None:
        """The scope's task is about to end."""
        self._busy.pop(scope, None)
        self._moved()

    def join(self, scope: Scope) -> Callable[[], None]:
        """The scope's task waits for scopes below it and for nothing else, until the returned function is called."""
        if not scope.watched:
            self._watch(scope)
        scope.inline += 1
        self._busy.pop(scope, None)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                scope.inline -= 1
                self._touch(scope)

        return end

    def open(self, key: str, scope: Scope) -> Call:
        """A call begins to work, awaited by the current task."""
        if not scope.watched:
            self._watch(scope)
        call = Call(key, scope, asyncio.current_task())
        call.asked = self.last
        self.order.count += 1
        if self.order.behind:
            self.order.open(key)
        self.calls[key] = call
        self._working += 1
        scope.open_calls += 1
        scope.unopened -= 1
        scope.inline += call.inline
        if scope.inline and not scope.unopened:
            self._busy.pop(scope, None)
            self._moved()
        else:
            self._touch(scope)
        return call

    def waits(self, call: Call, waiting: RunWait) -> None:
        """The call waits for something outside of this process, or for a moment."""
        if call.waiting is None:
            self._working -= 1
        call.waiting = waiting
        self._moved()

    def works(self, call: Call) -> None:
        """The call works again."""
        if call.waiting is not None:
            self._working += 1
        call.waiting = None
        self._moved()

    def hand_over(self, key: str) -> None:
        """What the call under this key waits for has come, and it works again as soon as it hears of it."""
        call = self.calls.get(key)
        if call is not None:
            self.works(call)

    def next_place(self, call: Call) -> int:
        """The place of an answer that is about to be recorded: none of a later place is given before it.

        An author who did not wait for the answer has chosen its place already.
        """
        if call.place is not None:
            return call.place
        self.release(call)
        self.order.last_place += 1
        self._allotted[call] = self.order.last_place
        call.opened = self.order.count
        return self.order.last_place

    def origin(self, call: Call, facts: dict[str, JsonValue] | None = None) -> str:
        """The ``meta`` of a call's record: its place among the answers, and further facts."""
        opened = self.order.count if call.place is None else call.opened
        text = f'{{"{ASKED}":{call.asked},"{OPENED}":{opened},"{CODE}":"{self.order.code}"}}'
        return f"{text[:-1]},{json.encode(facts)[1:]}" if facts else text

    def ended_origin(self, call: Call, begun: StepRecord) -> str:
        """The ``meta`` of a record that is replaced as its answer gets its place."""
        facts = cast("dict[str, JsonValue]", json.decode(begun.meta))
        facts.pop(SCHEMA, None)
        return json.encode({**facts, OPENED: call.opened})

    def release(self, call: Call) -> None:
        """What was recorded of the call is not given as its answer."""
        if self._allotted.pop(call, None) is not None:
            self._advanced.set()

    def close(self, call: Call, at: Millis | None = None) -> None:
        """The call is answered, at this recorded moment, or nobody wants its answer; its scope is busy again."""
        self.release(call)
        if self.calls.pop(call.key, None) is None:
            return
        call.task = None
        if call.waiting is None:
            self._working -= 1
        call.waiting = None
        scope = call.scope
        scope.open_calls -= 1
        scope.inline -= call.inline
        if at is not None and at > scope.now:
            scope.now = at
        self._touch(scope)

    def outlive(self) -> Callable[[], None]:
        """Something works beyond the end of its call: until the returned function is called."""
        self._working += 1

        def done() -> None:
            self._working -= 1
            self._moved()

        return done

    async def turn(self, call: Call, recorded: int, at: Millis = 0) -> None:
        """Come back when it is this answer's turn; the call is closed then, and its scope stands at this moment."""
        if not self._ready and not self._busy and not self._is_early(recorded):
            self._give(call, recorded, at)
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue(call, recorded, at, turn, None)
        await turn

    def deliver(self, call: Call, recorded: int, at: Millis, turn: "asyncio.Future[Any]", answer: object) -> None:
        """Set ``turn`` to the answer when it is its turn, as ``turn`` does; who has gone away is told nothing."""
        if self._ready or self._busy or self._is_early(recorded):
            self._queue(call, recorded, at, turn, answer)
        elif turn.done():
            self.release(call)
        else:
            self._give(call, recorded, at)
            turn.set_result(answer)

    def _queue(self, call: Call, recorded: int, at: Millis, turn: "asyncio.Future[Any]", answer: object) -> None:
        self._count += 1
        heapq.heappush(self._ready, (recorded, self._count, call, at, turn, answer))
        self._advanced.set()
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._deliver())

    async def idle(self) -> None:
        """Come back when no call works, at least one waits, and no scope is busy."""
        while True:
            self.changed.clear()
            if not self._may_rest():
                self._resting.clear()
                await self._resting.wait()
            elif not (rest := self._rest()):
                return
            else:
                await self._pause(rest)

    def waits_now(self) -> list[RunWait]:
        """What the open calls wait for."""
        return [call.waiting for call in self.calls.values() if call.waiting is not None]

    def forget_watchers(self) -> None:
        """Call back no more."""
        self.on_rest, self.on_missing = None, _go_on

    def stop(self) -> None:
        """Deliver no further answer."""
        if self._pump is not None:
            self._pump.cancel()

    async def caught_up(self) -> None:
        """Come back when every recorded call is open, or ``on_missing`` has said to go on without it."""
        while (missing := self.order.missing()) is not None:
            if await self._opens_another():
                continue
            if self._ready and self.order.missing_before(self._ready[0][0]) is None:
                # An answer is on its way, and the call may be opened upon it.
                await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
            elif self.on_missing(missing):
                self.order.give_up(missing)
            else:
                await asyncio.get_running_loop().create_future()

    async def _deliver(self) -> None:
        while self._ready:
            await self._settled()
            if self._follows(self._ready[0][0]):
                self._advanced.clear()
                await self._advanced.wait()
                continue
            missing = self.order.missing_before(self._ready[0][0])
            if missing is not None and not await self._opens_another():
                if not self.on_missing(missing):
                    return
                self.order.give_up(missing)
            if missing is not None:
                continue
            recorded, _, call, at, turn, answer = heapq.heappop(self._ready)
            if not turn.done():
                self._give(call, recorded, at)
                turn.set_result(answer)
            elif self._allotted.get(call) == recorded:
                self.release(call)
        self._resting.set()

    def _is_early(self, recorded: int) -> bool:
        """Whether an answer of an earlier place comes first, or a call that was open before this one."""
        return self._follows(recorded) or (self.order.behind and self.order.missing_before(recorded) is not None)

    def _follows(self, recorded: int) -> bool:
        """Whether an answer of an earlier place is being recorded: it may be written later, and is given first."""
        return next(iter(self._allotted.values()), recorded) < recorded

    def _give(self, call: Call, recorded: int, at: Millis) -> None:
        self.last = max(self.last, recorded)
        self.close(call, at)

    async def _opens_another(self) -> bool:
        """Wait until another call is opened; False where none will be, as far as can be told."""
        opened, began, turns = self.order.count, self._clock.elapsed(), 0
        while self.order.count == opened:
            if not any(not scope.over for scope in self._busy):
                # Every task waits for an answer, and none is opened without one.
                return False
            left = self._patience_ms - (self._clock.elapsed() - began)
            if self._quiet_ms:
                if left <= 0:
                    return False
                self.changed.clear()
                await event_or_time(self.changed, self._clock, left / 1000)
            elif (turns := turns + 1) > _PATIENT_TURNS:
                return False
            else:
                await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
        return True

    async def _settled(self) -> None:
        """Come back when every scope has opened its next call, or gives no sign of doing so."""
        while self._busy:
            if (turns := self._turns_left()) > 0:
                await self._turns(turns)
            elif (silence := self._silence_left()) > 0:
                self.changed.clear()
                await event_or_time(self.changed, self._clock, silence / 1000)
            else:
                return

    def _turns_left(self) -> int:
        """Turns of the loop until every scope has had its own."""
        left = [_TURNS - (self._iterations.count - turn) for scope, (_, turn) in self._busy.items() if not scope.over]
        return max(left, default=0)

    def _silence_left(self) -> float:
        """Milliseconds of silence until scopes without an open call count as settled."""
        elapsed = self._since_touched()
        quiet = [scope for scope in self._busy if not scope.over and not scope.open_calls]
        return max((self._quiet_ms - (elapsed - self._busy[scope][0]) for scope in quiet), default=0.0)

    def _since_touched(self) -> float:
        """The clock; scopes that were touched since it was read last count as touched now."""
        elapsed = self._clock.elapsed()
        for scope, (touched, turn) in self._busy.items():
            if touched == math.inf:
                self._busy[scope] = (elapsed, turn)
        return elapsed

    def _rest(self) -> float:
        """Seconds until every busy scope has been quiet for long enough; 0 where they have been."""
        elapsed = self._since_touched()
        left = [
            self._quiet_ms - (elapsed - touched) if self._quiet_ms else float(self._iterations.count - turn < _TURNS)
            for scope, (touched, turn) in self._busy.items()
            if not scope.over
        ]
        return max(max(left, default=0.0), 0.0) / 1000

    async def _pause(self, seconds: float) -> None:
        """Wait for something to happen here, at most so long."""
        if self._quiet_ms:
            await event_or_time(self.changed, self._clock, seconds)
            return
        await self._turns(_TURNS)

    async def _turns(self, count: int) -> None:
        """Come back after so many turns of the loop, or when something happens here."""
        turned = self._iterations.after(count)
        self._looking.append(turned)
        try:
            await turned
        finally:
            self._looking.remove(turned)

    def _stir(self) -> None:
        """Whoever counts turns has to look again."""
        for turned in self._looking:
            if not turned.done():
                turned.set_result(None)

    def _watch(self, scope: Scope) -> None:
        """When the scope's task has ended, the code around it may wait for that alone: it gets its turns."""
        if scope.task is None:
            return
        scope.watched = True

        def over(_task: object) -> None:
            self._busy.pop(scope, None)
            parent = scope.parent
            if parent is not None and not parent.inline:
                touched, _ = self._busy.get(parent, (-math.inf, 0))
                self._busy[parent] = (touched, self._iterations.count)
            self._stir()

        scope.task.add_done_callback(over)

    def _touch(self, scope: Scope) -> None:
        self._busy[scope] = (math.inf, self._iterations.count)
        self._moved()

    def _may_rest(self) -> bool:
        return not self._working and bool(self.calls) and not self._ready

    def _moved(self) -> None:
        self.moves += 1
        if not self.changed.is_set():
            self.changed.set()
        if self._looking:
            self._stir()
        if not self._working and self.calls:
            self._resting.set()
            if self.on_rest is not None:
                told, self.on_rest = self.on_rest, None
                told()


def _go_on(_key: str) -> bool:
    return True
