"""The PostgreSQL driver."""

from belay_drivers.postgres.opening import MIGRATIONS, migrate_postgres, open_postgres
from belay_drivers.sql.ladder import MigrationSet

__all__ = ["MIGRATIONS", "MigrationSet", "migrate_postgres", "open_postgres"]
