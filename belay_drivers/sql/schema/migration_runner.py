"""Apply migrations forward, all or none, and check the schema at every opening."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, insert, inspect, literal, select, text

from belay_core.clock import Millis
from belay_core.errors import SchemaMismatch
from belay_core.stores.bundle import LeaseTimes
from belay_drivers.sql.connection.dialect import SqlDialect
from belay_drivers.sql.schema.migration_plan import COMMAND, Migration, Recorded, pending
from belay_drivers.sql.schema.tables import migrations, store

_NO_SCHEMA: Final = f"the database has no belay schema; run `{COMMAND}`"


class Interrupted(Exception):
    """The caller of the migration was cancelled; everything so far is rolled back."""


def printed(steps: Sequence[Migration], applied_at: str, since: int = -1) -> str:
    """The migrations above an id as one script with its ledger entries; ``applied_at`` is an SQL expression for now."""
    parts: list[str] = []
    for step in steps:
        if step.id <= since:
            continue
        row = {
            "migration_id": literal(step.id),
            "name": literal(step.name),
            "checksum": literal(step.checksum),
            "applied_at": text(applied_at),
        }
        entry = insert(migrations).values(row).compile(compile_kwargs={"literal_binds": True})
        parts.append(f"-- {step.id:04d} {step.name}\n\n{step.sql.strip()}\n\n{entry};\n")
    return "\n".join(parts)


def missing(tx: Connection, steps: Sequence[Migration]) -> list[Migration]:
    """Migrations that are not applied yet. Raises ``SchemaMismatch`` and ``MigrationRefused``."""
    return pending(steps, _recorded(tx))


def apply(
    tx: Connection, steps: Sequence[Migration], now_ms: Millis, *, go_on: Callable[[], bool] = lambda: True
) -> list[tuple[int, str]]:
    """Apply missing migrations inside the caller's transaction; returns their ids and names.

    Raises ``Interrupted`` between two statements once ``go_on`` is false, ``SchemaMismatch`` and ``MigrationRefused``.
    """
    applied: list[tuple[int, str]] = []
    for step in missing(tx, steps):
        for statement in step.statements:
            _check(go_on)
            tx.exec_driver_sql(statement)
        tx.execute(
            insert(migrations),
            {
                "migration_id": step.id,
                "name": step.name,
                "checksum": step.checksum,
                "applied_at": now_ms,
            },
        )
        applied.append((step.id, step.name))
    _check(go_on)
    return applied


def applied_at(tx: Connection, moment: Millis) -> list[tuple[int, str]]:
    """The id and name of each migration that the ledger records at this time."""
    ledger = migrations.c
    rows = tx.execute(
        select(ledger.migration_id, ledger.name).where(ledger.applied_at == moment).order_by(ledger.migration_id)
    )
    return [(row.migration_id, row.name) for row in rows]


def until_cancelled() -> Callable[[], bool]:
    """A function that returns, in any thread, whether the current task has not been cancelled since."""
    task = asyncio.current_task()
    if task is None:
        return lambda: True
    before = task.cancelling()
    return lambda: task.cancelling() <= before


def verify(tx: Connection, steps: Sequence[Migration], dialect: SqlDialect) -> LeaseTimes:
    """Check that this code can use the schema; returns the lease times stored in it.

    Raises ``SchemaMismatch`` that names the command to run.
    """
    check(tx, steps, dialect)
    times = tx.execute(select(store.c.interval_ms, store.c.stale_after_ms, store.c.skew_ms)).all()
    if len(times) != 1:
        raise SchemaMismatch("altered", f"the database does not say its lease times once; see `{COMMAND}`")
    return LeaseTimes(*times[0])


def check(tx: Connection, steps: Sequence[Migration], dialect: SqlDialect) -> None:
    """Check that all of these migrations are applied, changing nothing. Raises ``SchemaMismatch``."""
    recorded = _recorded(tx)
    if not recorded:
        raise SchemaMismatch("empty" if dialect.is_empty(tx) else "foreign", _NO_SCHEMA)
    lacking = [step.name for step in pending(steps, recorded)]
    if lacking:
        raise SchemaMismatch("older", f"the database lacks migrations ({', '.join(lacking)}); run `{COMMAND}`")


def _check(go_on: Callable[[], bool]) -> None:
    if not go_on():
        raise Interrupted


def _recorded(tx: Connection) -> Recorded:
    if not inspect(tx).has_table(migrations.name):
        return {}
    rows = tx.execute(select(migrations.c.migration_id, migrations.c.name, migrations.c.checksum)).all()
    return {row.migration_id: (row.name, row.checksum) for row in rows}
