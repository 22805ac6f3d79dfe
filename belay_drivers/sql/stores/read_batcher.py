"""Batch reads: keys that are requested during a read are read together by the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextvars import Context
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ReadBatcher(Generic[K, V]):
    """Reads single keys in batches; each result was read after its request."""

    def __init__(self, read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read = read
        self._asked: dict[K, asyncio.Future[V | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def one(self, key: K) -> V | None:
        """The value of this key, None if there is none; raises the error of the read."""
        answered = self._asked.get(key)
        if answered is None:
            answered = self._asked[key] = asyncio.get_running_loop().create_future()
        reading = self._reading
        if reading is None:
            # In a new context: a shared read belongs to none of its callers.
            reading = self._reading = asyncio.create_task(self._read_all(), context=Context())
        try:
            return await asyncio.shield(answered)
        except asyncio.CancelledError:
            # A read without waiters is cancelled.
            while not reading.done():
                try:
                    await asyncio.wait([reading])
                except asyncio.CancelledError:
                    continue
            raise

    async def _read_all(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                await self._answer(asked)
        finally:
            self._reading = None

    async def _answer(self, asked: dict[K, "asyncio.Future[V | None]"]) -> None:
        try:
            found = await self._read([*asked])
        except Exception as error:  # noqa: BLE001  (raised to every caller)
            for answered in asked.values():
                answered.set_exception(error)
                answered.exception()  # retrieved, in case every caller was cancelled
            return
        for key, answered in asked.items():
            answered.set_result(found.get(key))
