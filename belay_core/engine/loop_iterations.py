"""Turns of the event loop, counted once for everybody who waits for some of them."""

import asyncio
from collections import defaultdict


class LoopIterations:
    """Counts the turns of one event loop while somebody waits for them; the count stands still meanwhile."""

    def __init__(self) -> None:
        self.count = 0
        """Turns counted so far: between two readings the loop made at least so many."""
        self._waiting: defaultdict[int, list[asyncio.Future[None]]] = defaultdict(list)

    def after(self, turns: int) -> "asyncio.Future[None]":
        """Done after so many turns; who no longer waits sets or cancels it."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._tick, loop)
        turned: asyncio.Future[None] = loop.create_future()
        self._waiting[self.count + turns].append(turned)
        return turned

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.count += 1
        for turned in self._waiting.pop(self.count, ()):
            if not turned.done():
                turned.set_result(None)
        if self._waiting:
            loop.call_soon(self._tick, loop)
