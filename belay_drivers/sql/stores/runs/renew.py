"""Renew leases: all of a worker's in one statement."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, select

from belay_core.records import commands
from belay_core.records.owner import Lease
from belay_core.stores.attempts import RunNotFound
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import Renewed, RenewOutcome
from belay_drivers.sql.connection.database import ATTEMPTS, Done, Unknown
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.stores.base import EngineRole

_EXIST: Final = select(runs.c.run_id).where(runs.c.run_id.in_(bindparam("b_runs", expanding=True)))
_MARKS: Final = select(runs.c.ready_at, runs.c.cancel_requested_at).where(runs.c.run_id == bindparam("b_run"))


class RenewLeases(EngineRole):
    """``renew``."""

    async def renew(self, command: commands.Renew) -> tuple[RenewOutcome, ...]:
        """Renew leases, in one statement; outcomes in the order of the leases."""
        return await self._run_command("renew", self._renew(command)) if command.leases else ()

    async def _renew(self, command: commands.Renew) -> tuple[RenewOutcome, ...]:
        leases = tuple(dict.fromkeys(command.leases))
        answers = await self._renew_each(commands.Renew(leases))
        known = dict(zip(leases, answers, strict=True))
        return tuple(known[lease] for lease in command.leases)

    async def _renew_each(self, command: commands.Renew) -> Sequence[RenewOutcome]:
        now_ms, hot = self._now(), self._parts.hot
        sent = await hot.renew(command, now_ms)
        for _ in range(ATTEMPTS):
            if isinstance(sent, Done):
                break
            # Idempotent.
            sent = await hot.renew(command, now_ms)
        if isinstance(sent, Unknown):
            raise sent.failure.error()
        held = {row["place"]: row for row in sent.value}
        lost = [lease for place, lease in enumerate(command.leases) if place not in held]
        gone: dict[Lease, RenewOutcome] = {}
        if lost:
            gone = await self._parts.database.read(lambda tx: _lost(tx, lost))
        return [
            Renewed(held[place]["ready_at"], held[place]["cancel_requested_at"]) if place in held else gone[lease]
            for place, lease in enumerate(command.leases)
        ]


def _lost(tx: Connection, leases: Sequence[Lease]) -> dict[Lease, RenewOutcome]:
    keys = {lease: key_of(lease.run_id) for lease in leases}
    there = set(tx.execute(_EXIST, {"b_runs": sorted(set(keys.values()))}).scalars())
    return {lease: FenceLost() if key in there else RunNotFound() for lease, key in keys.items()}
