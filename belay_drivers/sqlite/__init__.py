"""The SQLite driver: a file that survives its processes, or a database in memory."""

from belay_drivers.sqlite.opening import migrate_sqlite, migration_script, open_sqlite

__all__ = ["migrate_sqlite", "migration_script", "open_sqlite"]
