"""Engines that break a promise, to see that it is found."""

import asyncio
from dataclasses import replace
from typing import Any, cast

from belay_core import commands
from belay_core.outcomes.engine import Recorded
from belay_core.stores import EngineStore, Stores


class Hasty:
    """A store that acknowledges what is recorded before it is committed."""

    def __init__(self, inner: EngineStore) -> None:
        self._inner = inner
        self._sent: set[asyncio.Future[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def record(self, command: commands.Record) -> Recorded:
        self._sent.add(asyncio.ensure_future(self._inner.record(command)))
        return Recorded(None, None)

    async def settle(self, command: commands.Settle) -> Any:
        await asyncio.gather(*self._sent)
        return await self._inner.settle(command)


def acknowledging_early(stores: Stores) -> Stores:
    """The stores, where a record is acknowledged before it is committed."""
    return replace(stores, engine=cast("EngineStore", Hasty(stores.engine)))


PLANTED = {"acknowledges early": acknowledging_early}
