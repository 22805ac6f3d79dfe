"""Engines that break a promise, to see that it is found."""

import asyncio
from dataclasses import replace
from typing import Any

from belay_core.records import commands
from belay_core.stores import AttemptStore, RunStore, Stores
from belay_core.stores.attempts import Recorded


class Hasty:
    """Stores that acknowledge what is recorded before it is committed; the end of a run waits for the commits."""

    def __init__(self, runs: RunStore, attempts: AttemptStore) -> None:
        self._runs, self._attempts = runs, attempts
        self._sent: set[asyncio.Future[Any]] = set()

    async def record(self, command: commands.Record) -> Recorded:
        self._sent.add(asyncio.ensure_future(self._attempts.record(command)))
        return Recorded(None, None)

    async def settle(self, command: commands.Settle) -> Any:
        await asyncio.gather(*self._sent)
        return await self._runs.settle(command)


class With:
    """A store some of whose operations are done by another."""

    def __init__(self, inner: object, **operations: Any) -> None:
        self._inner = inner
        vars(self).update(operations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def acknowledging_early(stores: Stores) -> Stores:
    """The stores, where a record is acknowledged before it is committed."""
    hasty = Hasty(stores.runs, stores.attempts)
    runs: Any = With(stores.runs, settle=hasty.settle)
    attempts: Any = With(stores.attempts, record=hasty.record)
    return replace(stores, runs=runs, attempts=attempts)


PLANTED = {"acknowledges early": acknowledging_early}
