"""The PostgreSQL driver."""

from belay_drivers.postgres.opening import MIGRATIONS, migrate_postgres, open_postgres

__all__ = ["MIGRATIONS", "migrate_postgres", "open_postgres"]
