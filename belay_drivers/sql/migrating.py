"""Migrations: numbered SQL files of a driver, applied forward, all or nothing, and checked at every opening."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Final

from sqlalchemy import Connection, insert, inspect, literal, select, text

from belay_core.errors import SchemaMismatch
from belay_core.moments import Millis
from belay_core.stores.bundle import LeaseTimes
from belay_drivers.sql.tables import migrations, store

COMMAND: Final = "belay migrate"
_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered change of the schema."""

    id: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, so that a file that was changed after it was applied is noticed."""
        return sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements one by one; in these files a statement ends where a line ends with a semicolon."""
        return [part.strip() for part in re.split(r";\s*$", self.sql, flags=re.MULTILINE) if part.strip()]


def ladder(package: str) -> tuple[Migration, ...]:
    """The migrations of a driver, in order."""
    found = [
        Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8"))
        for entry in files(package).joinpath("migrations").iterdir()
        if (match := _FILE.fullmatch(entry.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.id))


def printed(steps: Sequence[Migration], applied_at: str) -> str:
    """All migrations as one script with its ledger entries; ``applied_at`` is an SQL expression for now."""
    parts: list[str] = []
    for step in steps:
        row = {
            "migration_id": literal(step.id),
            "name": literal(step.name),
            "checksum": literal(step.checksum),
            "applied_at": text(applied_at),
        }
        entry = insert(migrations).values(row).compile(compile_kwargs={"literal_binds": True})
        parts.append(f"-- {step.id:04d} {step.name}\n\n{step.sql.strip()}\n\n{entry};\n")
    return "\n".join(parts)


def apply(tx: Connection, steps: Sequence[Migration], now_ms: Millis) -> list[tuple[int, str]]:
    """Apply what is missing, inside the caller's transaction, and say what that was."""
    recorded = _recorded(tx)
    _check_known(recorded, steps)
    applied: list[tuple[int, str]] = []
    for step in steps:
        if step.id in recorded:
            continue
        for statement in step.statements:
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
    return applied


def verify(tx: Connection, steps: Sequence[Migration]) -> LeaseTimes:
    """Check that the schema is the one this code was written for, and give the lease times kept in it.

    Raises ``SchemaMismatch``, which names the command that helps.
    """
    recorded = _recorded(tx)
    if not recorded:
        raise SchemaMismatch(f"the database has no belay schema; run `{COMMAND}`")
    _check_known(recorded, steps)
    missing = [step.name for step in steps if step.id not in recorded]
    if missing:
        raise SchemaMismatch(f"the database lacks migrations ({', '.join(missing)}); run `{COMMAND}`")
    times = tx.execute(select(store.c.interval_ms, store.c.stale_after_ms, store.c.skew_ms)).all()
    if len(times) != 1:
        raise SchemaMismatch(f"the database does not say its lease times once; see `{COMMAND}`")
    return LeaseTimes(*times[0])


def is_empty(tx: Connection) -> bool:
    """Whether the database holds no table at all."""
    return not inspect(tx).get_table_names()


def _recorded(tx: Connection) -> dict[int, tuple[str, str]]:
    if not inspect(tx).has_table(migrations.name):
        return {}
    rows = tx.execute(select(migrations.c.migration_id, migrations.c.name, migrations.c.checksum)).all()
    return {row.migration_id: (row.name, row.checksum) for row in rows}


def _check_known(recorded: dict[int, tuple[str, str]], steps: Sequence[Migration]) -> None:
    known = {step.id: (step.name, step.checksum) for step in steps}
    for number, entry in sorted(recorded.items()):
        if number not in known:
            raise SchemaMismatch(
                f"the database has migration {number}, which this version of belay does not know; "
                f"install the version that ran `{COMMAND}`"
            )
        if known[number] != entry:
            raise SchemaMismatch(
                f"migration {number} was applied in another form than this version of belay has; "
                f"`{COMMAND}` does not repair that"
            )
    holes = [step.id for step in steps if step.id not in recorded and recorded and step.id < max(recorded)]
    if holes:
        raise SchemaMismatch(f"the database lacks migration {holes[0]} below others; `{COMMAND}` never fills holes")
