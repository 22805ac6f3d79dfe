"""The SQLite driver: a file that survives its processes, or a database in memory."""

from belay_drivers.sql.schema.migration_plan import MigrationSet
from belay_drivers.sqlite.open import MIGRATIONS, migrate_sqlite, open_sqlite

__all__ = ["MIGRATIONS", "MigrationSet", "migrate_sqlite", "open_sqlite"]
