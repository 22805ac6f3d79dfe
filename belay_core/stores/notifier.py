"""Wake-ups: a hint that something committed, never the only way to learn of it."""

import asyncio
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Protocol

from belay_core.clock import Signal
from belay_core.records.workflow_run import RunEnd


class Relay(Protocol):
    """Carries the wake-ups of this process to others; whoever pokes or listens never waits for it nor hears of it."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether it hears of what others commit just now."""

    @abstractmethod
    def tell(self, run_id: str | None, *, ready: bool) -> None:
        """Somebody here has poked (``Notifier.poke``)."""

    @abstractmethod
    def listen(self) -> None:
        """Somebody here waits, and has to hear of what others commit."""


class EndListener(Signal):
    """Set by pokes for one run, and told how it ended where that was in this process: nobody has to read it then."""

    end: RunEnd | None = None


class Notifier:
    """Lets those who wait in this process look again at once, and with a relay those in other processes too."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str | None, set[asyncio.Event]] = defaultdict(set)
        self._relay: Relay | None = None

    @property
    def hears_peers(self) -> bool:
        """Whether those who wait here are told just now of what other processes commit."""
        return self._relay is not None and self._relay.connected

    def relay_by(self, relay: Relay) -> None:
        """From now on other processes hear of pokes here; the relay gives theirs to ``hear``."""
        self._relay = relay

    def notify(self, run_id: str | None = None, *, ready: bool = False, end: RunEnd | None = None) -> None:
        """Something committed that those who listen to this run may wait for.

        ``ready`` says that the run may be taken now; those who listen to all runs hear of that alone. ``end`` is how
        the run ended, where that is what committed.
        """
        if end is not None:
            for listener in self._listeners.get(run_id, ()):
                if isinstance(listener, EndListener):
                    listener.end = end
        self.hear(() if run_id is None else (run_id,), ready=ready)
        if self._relay is not None:
            self._relay.tell(run_id, ready=ready)

    def hear(self, run_ids: Collection[str] | None, *, ready: bool) -> None:
        """Wake those here alone who wait for these runs, for any where None, or for a run that may be taken."""
        for run_id in tuple(self._listeners) if run_ids is None else run_ids:
            if run_id is not None:
                self._wake(run_id)
        if ready:
            self._wake(None)

    @contextmanager
    def listening(self, run_id: str | None = None, event: asyncio.Event | None = None) -> Generator[asyncio.Event]:
        """An event set by the pokes for one run, or by every run that gets ready, until the block is left.

        The listener clears it.
        """
        event = event or Signal()
        self._listeners[run_id].add(event)
        if self._relay is not None:
            self._relay.listen()
        try:
            yield event
        finally:
            self._listeners[run_id].discard(event)
            if not self._listeners[run_id]:
                del self._listeners[run_id]

    def _wake(self, run_id: str | None) -> None:
        for listener in self._listeners.get(run_id, ()):
            listener.set()
