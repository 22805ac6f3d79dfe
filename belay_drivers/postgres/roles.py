"""Three roles with the least rights each needs: migrator, worker, reader."""

from typing import Final

from belay_drivers.sql.schema import tables

MIGRATOR: Final = "belay_migrator"
WORKER: Final = "belay_worker"
READER: Final = "belay_reader"

# Workers only read what a migration writes; and no role may change entries of the journal.
_OF_WORKER: Final = {
    tables.migrations.name: "SELECT",
    tables.store.name: "SELECT",
    tables.journal.name: "SELECT, INSERT",
}
_ALL: Final = "SELECT, INSERT, UPDATE, DELETE"
_FUNCTIONS: Final = ("belay_runs_sound()",)
"""Functions of triggers: calling them needs no right, but the migrator has to be able to replace them."""

_ROLE: Final = """DO $$ BEGIN
  CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
ALTER ROLE {role} SET search_path = "{schema}", pg_temp;
REVOKE ALL ON SCHEMA "{schema}" FROM {role};
GRANT USAGE ON SCHEMA "{schema}" TO {role};"""


def grants(schema: str = "public") -> str:
    """The script: roles without a password, rights on the schema and on each of belay's tables.

    Run it as a user that may create roles and owns the tables, after each ``belay migrate``; it is idempotent.
    ``schema`` is a plain name: lower-case letters, digits and underscores. Raises ``ValueError`` for another.
    """
    if not schema.isascii() or not schema.isidentifier() or schema != schema.lower():
        raise ValueError("schema: must be lower-case letters, digits and underscores")
    lines = [
        f'REVOKE CREATE ON SCHEMA "{schema}" FROM PUBLIC;',
        *(_ROLE.format(role=role, schema=schema) for role in (MIGRATOR, WORKER, READER)),
        f'GRANT CREATE ON SCHEMA "{schema}" TO {MIGRATOR};',
    ]
    for name in sorted(tables.metadata.tables):
        table = f'"{schema}".{name}'
        lines += [
            f"ALTER TABLE {table} OWNER TO {MIGRATOR};",
            f"REVOKE ALL ON {table} FROM PUBLIC, {WORKER}, {READER};",
            f"GRANT {_OF_WORKER.get(name, _ALL)} ON {table} TO {WORKER};",
            f"GRANT SELECT ON {table} TO {READER};",
        ]
    lines += [f'ALTER FUNCTION "{schema}".{name} OWNER TO {MIGRATOR};' for name in _FUNCTIONS]
    return "\n".join(lines) + "\n"
