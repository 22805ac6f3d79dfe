"""The PostgreSQL driver."""

from belay_drivers.postgres.open import MIGRATIONS, migrate_postgres, open_postgres
from belay_drivers.sql.schema.migration_plan import MigrationSet

__all__ = ["MIGRATIONS", "MigrationSet", "migrate_postgres", "open_postgres"]
