"""Wake-ups inside one process: a hint that something committed, never the only way to learn of it."""

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager


class Wakes:
    """Lets those who wait in this process look again at once."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str | None, set[asyncio.Event]] = defaultdict(set)

    def poke(self, run_id: str | None = None, *, ready: bool = False) -> None:
        """Something committed that those who listen to this run may wait for.

        ``ready`` says that the run may be taken now; those who listen to all runs hear of that alone.
        """
        for listener in self._listeners.get(run_id, ()):
            listener.set()
        if ready:
            for listener in self._listeners.get(None, ()):
                listener.set()

    @contextmanager
    def listening(self, run_id: str | None = None, event: asyncio.Event | None = None) -> Generator[asyncio.Event]:
        """An event set by the pokes for one run, or by every run that gets ready, until the block is left.

        The listener clears it.
        """
        event = event or asyncio.Event()
        self._listeners[run_id].add(event)
        try:
            yield event
        finally:
            self._listeners[run_id].discard(event)
            if not self._listeners[run_id]:
                del self._listeners[run_id]
