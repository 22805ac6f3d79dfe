"""The write boundary, watched."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from typing_extensions import override

from belay_core.stores.writing import Hook, Transaction, Writer
from belay_core.telemetry import names
from belay_core.telemetry.attempt_store import ObservedAttemptStore
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.journal import ObservedJournal
from belay_core.telemetry.run_store import ObservedRunStore
from belay_core.telemetry.waiting_store import ObservedWaitingStore
from belay_core.telemetry.watch import Watch

T = TypeVar("T")


class ObservedWriter(Writer):
    """A writer that does what the one it is given does, and leaves spans and counts of it.

    A run that is over is counted when the outermost write has committed: an attempt that is rolled back or repeated
    has ended no run.
    """

    def __init__(self, writer: Writer, instruments: Instruments) -> None:
        self._writer = writer
        self._instruments = instruments
        writer.on_retry(instruments.count_retry)
        instruments.watch_queue(writer)

    @override
    async def write(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        async def watched(transaction: Transaction) -> T:
            return await body(self._inside(transaction))

        with Watch(self._instruments, names.WRITER_WRITE):
            return await self._writer.write(watched)

    @override
    def after_commit(self, hook: Hook) -> bool:
        return self._writer.after_commit(hook)

    @override
    def on_retry(self, listener: Hook) -> None:
        self._writer.on_retry(listener)

    @property
    @override
    def queued(self) -> int:
        return self._writer.queued

    def _inside(self, transaction: Transaction) -> Transaction:
        tools = self._instruments.deferred(transaction.after_commit)
        return replace(
            transaction,
            runs=ObservedRunStore(transaction.runs, tools),
            attempts=ObservedAttemptStore(transaction.attempts, tools),
            waiting=ObservedWaitingStore(transaction.waiting, tools),
            journal=ObservedJournal(transaction.journal, tools),
            writer=ObservedWriter(transaction.writer, self._instruments),
        )
