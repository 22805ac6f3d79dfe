"""Keeping leases: one renewal a second for all runs of a worker, and a deadline that does not depend on it."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from belay_core import commands
from belay_core.engine.holding import Holding
from belay_core.errors import StoreError
from belay_core.stores.bundle import Stores

_LOG = logging.getLogger("belay")


class LeaseKeeper:
    """Renews the leases of all runs in hand together, and lets go of those that were not confirmed in time."""

    def __init__(self, stores: Stores, holdings: Callable[[], Iterable[Holding]]) -> None:
        self._stores = stores
        self._holdings = holdings
        self._failing = False

    async def renew_for_ever(self) -> None:
        """Renew once an interval."""
        while True:
            await self._stores.clock.sleep(self._stores.lease.interval_ms / 1000)
            await self.renew()

    async def watch_for_ever(self) -> None:
        """Enforce the deadlines once an interval, or when the first of them is due; a renewal that hangs is no help."""
        while True:
            left = self.let_go_of_lapsed()
            await self._stores.clock.sleep(min(left, self._stores.lease.interval_ms) / 1000)

    async def renew(self) -> None:
        """Renew every lease in hand, in one statement."""
        holdings = [each for each in self._holdings() if not each.lost]
        if not holdings:
            return
        sent_at = self._stores.clock.elapsed()
        try:
            answers = await self._stores.engine.renew(commands.Renew(tuple(each.lease for each in holdings)))
        except StoreError as error:
            if not self._failing:
                _LOG.warning("lease renewal failed", extra={"code": error.code})
            self._failing = True
            return
        self._failing = False
        for holding, answer in zip(holdings, answers, strict=True):
            holding.renewed(sent_at, answer)

    def let_go_of_lapsed(self) -> float:
        """Let go of runs whose lease was not confirmed within the tolerance; milliseconds until the next may lapse."""
        now, tolerance = self._stores.clock.elapsed(), self._stores.lease.tolerance_ms
        left: float = tolerance
        for holding in self._holdings():
            rest = holding.confirmed_at + tolerance - now
            if rest > 0:
                left = min(left, rest)
            elif not holding.lost:
                _LOG.warning("run lease lapsed; interrupting owned work", extra={"run_id": holding.lease.run_id})
                holding.let_go()
        return left


async def keep(keeper: LeaseKeeper) -> None:
    """Renew and watch, independently of each other, until cancelled."""
    async with asyncio.TaskGroup() as both:
        both.create_task(keeper.renew_for_ever())
        both.create_task(keeper.watch_for_ever())
