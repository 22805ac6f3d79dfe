"""Wake-ups inside one process: a hint that something committed, never the only way to learn of it."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Wakes:
    """Lets those who wait in this process look again at once."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str | None, set[asyncio.Event]] = defaultdict(set)

    def poke(self, run_id: str | None = None) -> None:
        """Something committed that those who listen to this run, or to all runs, may wait for."""
        for topic in {None, run_id}:
            for listener in self._listeners.get(topic, ()):
                listener.set()

    @contextmanager
    def listening(self, run_id: str | None = None, event: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """An event set by the pokes for one run, or by every poke, until the block is left; the listener clears it."""
        event = event or asyncio.Event()
        self._listeners[run_id].add(event)
        try:
            yield event
        finally:
            self._listeners[run_id].discard(event)
            if not self._listeners[run_id]:
                del self._listeners[run_id]
