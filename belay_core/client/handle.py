"""The handle of a started run."""

import asyncio
from typing import Generic, TypeVar

from belay_core.clock import event_or_time
from belay_core.engine.failures import read_failure
from belay_core.errors import RunCancelled, RunFailed, RunNotFoundError
from belay_core.ids import RunId
from belay_core.records.run import RunStatus, is_terminal_run_status
from belay_core.records.workflow_run import RunEnd
from belay_core.stores.bundle import Stores
from belay_core.stores.notifier import EndListener
from belay_core.values.codecs import Codec

Out = TypeVar("Out")

POLL = 0.1
"""Seconds between the first two polls of a run; doubled up to ``LONGEST_POLL``."""
LONGEST_POLL = 1.0
"""Seconds between two polls of a run that another process executes."""


class RunHandle(Generic[Out]):
    """One run: its id, and its result once there is one."""

    def __init__(
        self, stores: Stores, run_id: RunId, codec: Codec[Out], *, created: bool, untouched: bool = False
    ) -> None:
        self.run_id = run_id
        """The id of the run."""
        self.created = created
        """Whether this call created the run; False if it existed already."""
        self._stores = stores
        self._codec = codec
        self._untouched = untouched
        """Whether no worker can have executed it yet: only during the loop iteration in which the handle was made."""
        if untouched:
            asyncio.get_running_loop().call_soon(self._touched)

    def _touched(self) -> None:
        self._untouched = False

    async def result(self) -> Out:
        """Wait for the end of the run and return its result.

        Raises ``RunFailed``, ``RunCancelled``, ``RunNotFoundError``; bound the wait with ``asyncio.timeout``.
        """
        end = await ended(self._stores, self.run_id, at_once=not self._untouched)
        if end.status is RunStatus.CANCELLED:
            raise RunCancelled(self.run_id)
        if end.status is RunStatus.FAILED:
            raise RunFailed(self.run_id, *read_failure(end.error))
        return self._codec.decode(end.result or "null")


async def ended(stores: Stores, run_id: RunId, *, at_once: bool = True) -> RunEnd:
    """Wait for the end of a run; without ``at_once`` the first read is after a notification or ``POLL`` seconds.

    Raises ``RunNotFoundError``.
    """
    woken = EndListener()
    with stores.notifier.listening(run_id, woken):
        wait = POLL
        if not at_once:
            await event_or_time(woken, stores.clock, wait)
            wait *= 2
        while woken.end is None:
            woken.clear()
            run = await stores.runs.find(run_id)
            if run is None and woken.end is not None:
                # Deleted after its end, of which this process was notified.
                return woken.end
            if run is None:
                raise RunNotFoundError(f"run: there is no run {run_id}")
            status = run.status
            if is_terminal_run_status(status):
                return RunEnd(status, run.result, run.error)
            await event_or_time(woken, stores.clock, wait)
            wait = min(2 * wait, LONGEST_POLL)
        return woken.end
