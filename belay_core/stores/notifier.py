"""Notifications: hints that something committed, never the only way to learn of it."""

import asyncio
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Protocol

from belay_core.clock import Signal
from belay_core.records.workflow_run import RunEnd


class Relay(Protocol):
    """Sends the notifications of this process to others; its calls neither block nor raise."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether it receives notifications of other processes now."""

    @abstractmethod
    def publish(self, run_id: str | None, *, ready: bool) -> None:
        """Send a notification of this process (``Notifier.notify``) to others."""

    @abstractmethod
    def listen(self) -> None:
        """A listener of this process waits, and needs notifications of other processes."""


class EndListener(Signal):
    """Set by notifications of one run; holds how the run ended if it ended in this process, which saves a read."""

    end: RunEnd | None = None


class Notifier:
    """Wakes listeners of this process, and with a relay those of other processes too, so that they read again."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str | None, set[asyncio.Event]] = defaultdict(set)
        self._relay: Relay | None = None

    @property
    def hears_peers(self) -> bool:
        """Whether listeners of this process receive notifications of other processes now."""
        return self._relay is not None and self._relay.connected

    def attach_relay(self, relay: Relay) -> None:
        """Send notifications to other processes from now on; the relay passes theirs to ``deliver``."""
        self._relay = relay

    def notify(self, run_id: str | None = None, *, ready: bool = False, end: RunEnd | None = None) -> None:
        """Notify the listeners of this run of a commit.

        ``ready`` says that the run is due now; listeners of all runs are woken only by that. ``end`` is how the run
        ended, if that is what committed.
        """
        if end is not None:
            for listener in self._listeners.get(run_id, ()):
                if isinstance(listener, EndListener):
                    listener.end = end
        self.deliver(() if run_id is None else (run_id,), ready=ready)
        if self._relay is not None:
            self._relay.publish(run_id, ready=ready)

    def deliver(self, run_ids: Collection[str] | None, *, ready: bool) -> None:
        """Wake listeners of this process: those of these runs (None: of any run), with ``ready`` also those of all."""
        for run_id in tuple(self._listeners) if run_ids is None else run_ids:
            if run_id is not None:
                self._wake(run_id)
        if ready:
            self._wake(None)

    @contextmanager
    def listening(self, run_id: str | None = None, event: asyncio.Event | None = None) -> Generator[asyncio.Event]:
        """An event that is set by notifications of one run, or by every run that becomes due, until the block is left.

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
