"""Lineages: chains of runs that callers see as one piece of work."""

from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, or_, select

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.records.run import RunRow
from belay_core.stores.run_contract import RunInput
from belay_drivers.sql.schema.tables import runs
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import Columns
from belay_drivers.sql.stores.runs.base import RunRole
from belay_drivers.sql.stores.runs.read import ONE_RUN, RUNS, decoded

_named: Final = runs.alias("named")
_LINEAGE: Final = (
    select(func.coalesce(_named.c.lineage_id, _named.c.run_id))
    .where(_named.c.run_id == bindparam("b_run"))
    .scalar_subquery()
)
MEMBER: Final[ColumnElement[bool]] = or_(
    runs.c.lineage_id == _LINEAGE,
    and_(runs.c.run_id == _LINEAGE, or_(runs.c.lineage_id.is_(None), runs.c.lineage_id == _LINEAGE)),
)
"""The run is a round of the lineage of ``b_run``.

The second part adds a first round without a lineage of its own; a run that only has the lineage's name and belongs to
another lineage is not one of its rounds.
"""
IN_ORDER: Final = (func.coalesce(runs.c.round_ordinal, 0), runs.c.run_id)
_MEMBERS: Final = RUNS.where(MEMBER).order_by(*IN_ORDER)
_LATEST: Final = RUNS.where(runs.c.lineage_id == _LINEAGE).order_by(runs.c.round_ordinal.desc()).limit(1)


class ReadLineages(RunRole):
    """``lineage`` and ``latest_round``."""

    async def lineage(self, run_id: RunId) -> tuple[RunRow, ...]:
        """Every round of the lineage of the named run, in order (6.3)."""
        run_id = RunInput("lineage").run_id(run_id)
        bound = {"b_run": key_of(run_id)}
        work = self._database.read(lambda tx: tx.execute(_MEMBERS, bound).mappings().all())
        return tuple(decoded(row, "lineage") for row in await self._guard("lineage", work, run_id))

    async def latest_round(self, run_id: RunId) -> RunRow:
        """The last round of the lineage, found from any of them (6.3)."""
        run_id = RunInput("latest_round").run_id(run_id)
        bound = {"b_run": key_of(run_id)}

        def find(tx: Connection) -> Columns | None:
            last = tx.execute(_LATEST, bound).mappings().one_or_none()
            return last or tx.execute(ONE_RUN, bound).mappings().one_or_none()

        row = await self._guard("latest_round", self._database.read(find), run_id)
        if row is None:
            raise RunStoreError("not_found_row", "latest_round", f"run {run_id} was not found", {"run_id": run_id})
        return decoded(row, "latest_round")
