"""Connections cut round the commit: the answer and everything stored are what they are on a calm connection."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from sqlalchemy import select

from belay_core.stores import Stores
from belay_drivers.postgres import open_postgres
from belay_drivers.sql.schema import tables
from belay_testing.clock import ManualClock
from belay_testing.conformance.kit import Kit
from belay_testing.ids import SequentialIds
from tests.faults.calls import AFTERWARDS, BEFOREHAND, SCENES, Rivalry
from tests.faults.wire import CUTS, Cut, WireProxy

PATIENCE = 20
KEPT = [table.name for table in reversed(tables.metadata.sorted_tables) if table.name.startswith("belay_")]
KEPT = [name for name in KEPT if name not in {"belay_store", "belay_migrations"}]


@dataclass
class Case:
    """One write and how its connection is cut."""

    name: str
    cut: Cut
    rivalry: Rivalry | None = None


@dataclass
class Found:
    """How many connections were cut, how many writes came to the right end, and what was wrong with the others."""

    cuts: int = 0
    resolved: int = 0
    wrong: list[str] = field(default_factory=list)


def cases(most: int) -> list[Case]:
    """So many cases, every write and every kind of cut among the first."""
    found = [Case(name, "reply", rivalry) for name, rivalry in AFTERWARDS.items()]
    found += [Case(name, "request", rivalry) for name, rivalry in BEFOREHAND.items()]
    found += [Case(name, cut) for cut, name in product(CUTS, SCENES)]
    return (found * (most // len(found) + 1))[:most]


class Pair:
    """Two databases of one schema: one is written to through the wire, the other as a calm connection leaves things."""

    def __init__(self, cut: Stores, calm: Stores, wire: WireProxy, wired_url: str, clock: ManualClock) -> None:
        self._beside, self._calm, self._wire, self._wired_url, self._clock = cut, calm, wire, wired_url, clock
        self._began = clock.now()
        self._expected: dict[str, tuple[Any, Any]] = {}

    async def judge(self, case: Case) -> str | None:
        """What is wrong with this case, None where nothing is."""
        if case.name not in self._expected:
            self._expected[case.name] = await self._calmly(case)
        wanted = self._expected[case.name]
        try:
            found = await asyncio.wait_for(self._cut(case), PATIENCE)
        except Exception as error:  # noqa: BLE001  whatever it is, it is wrong
            return f"{case.name} ({case.cut}): {type(error).__name__}: {error}"
        if found == wanted:
            return None
        differ = [name for name in found[1] if found[1][name] != wanted[1][name]]
        return f"{case.name} ({case.cut}): {found[0]} instead of {wanted[0]}, other rows in {differ}"

    async def _calmly(self, case: Case) -> tuple[Any, Any]:
        kit = await self._begin(self._calm)
        if case.rivalry is None:
            return await (await SCENES[case.name](kit))(), await contents(self._calm)
        call = await case.rivalry.scene(kit)
        if case.cut == "request":
            await case.rivalry.other(kit)
        answer = await call()
        if case.cut != "request":
            await case.rivalry.other(kit)
        return answer, await contents(self._calm)

    async def _cut(self, case: Case) -> tuple[Any, Any]:
        rival, rivalry = await self._begin(self._beside), case.rivalry
        async with open_postgres(self._wired_url, clock=self._clock, ids=SequentialIds()) as stores:
            made = SCENES[case.name] if rivalry is None else rivalry.scene
            call = await made(Kit(stores, self._clock))
            self._wire.arm(case.cut, None if rivalry is None else lambda: rivalry.other(rival))
            try:
                answer = await call()
            finally:
                # What is late must change nothing either, and must not come while the next case is looked at.
                await self._wire.quiet()
            if self._wire.armed:
                raise AssertionError("nothing was cut")
            return answer, await contents(self._beside)

    async def _begin(self, stores: Stores) -> Kit:
        """A kit over the emptied database, at the moment at which every case begins."""
        self._clock.set(self._began)

        def delete(tx: Any) -> None:
            for name in KEPT:
                tx.exec_driver_sql(f"DELETE FROM {name}")  # noqa: S608  constants

        await stores.runs._database.write(delete)  # type: ignore[attr-defined]
        return Kit(replace(stores, ids=SequentialIds()), self._clock)


async def contents(stores: Stores) -> dict[str, list[str]]:
    """Everything stored, but for what differs from database to database.

    How often was written is left out: shutting out a request that may still arrive is a write too.
    """

    def read(tx: Any) -> dict[str, list[str]]:
        known = {table.name: table for table in tables.metadata.sorted_tables}
        wanted = {name: [column for column in known[name].c if column.name != "write_seq"] for name in KEPT}
        return {name: sorted(map(str, tx.execute(select(*wanted[name])).all())) for name in KEPT}

    found: dict[str, list[str]] = await stores.runs._database.read(read)  # type: ignore[attr-defined]
    return found


async def cut_commits(cut_url: str, calm_url: str, which: int | Sequence[Case]) -> Found:
    """Cut so many connections, or just these, and judge each write."""
    wire, found, clock = WireProxy(cut_url), Found(), ManualClock()
    async with (
        wire.running() as wired_url,
        open_postgres(cut_url, clock=clock) as beside,
        open_postgres(calm_url, clock=clock) as calm,
    ):
        pair = Pair(beside, calm, wire, wired_url, clock)
        for case in cases(which) if isinstance(which, int) else which:
            wrong = await pair.judge(case)
            found.resolved += wrong is None
            if wrong is not None:
                found.wrong.append(wrong)
    found.cuts = wire.cuts
    return found
