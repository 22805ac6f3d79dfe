"""Three roles with the least rights each needs: one migrates, one works, one looks."""

from typing import Final

from belay_drivers.sql.schema import tables

MIGRATOR: Final = "belay_migrator"
WORKER: Final = "belay_worker"
READER: Final = "belay_reader"

# What a migration writes, workers only read; and nobody rewrites what the journal says has happened.
_OF_WORKER: Final = {
    tables.migrations.name: "SELECT",
    tables.store.name: "SELECT",
    tables.journal.name: "SELECT, INSERT",
}
_ALL: Final = "SELECT, INSERT, UPDATE, DELETE"
_FUNCTIONS: Final = ("belay_runs_sound()",)
"""What triggers call: nobody needs a right for that, but who migrates has to be able to change it."""

_ROLE: Final = """DO $$ BEGIN
  CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
ALTER ROLE {role} SET search_path = "{schema}", pg_temp;
REVOKE ALL ON SCHEMA "{schema}" FROM {role};
GRANT USAGE ON SCHEMA "{schema}" TO {role};"""


def grants(schema: str = "public") -> str:
    """The script: roles without a password, rights on the schema, rights on each of belay's tables.

    It is run by whoever may create roles and owns the tables, after each ``belay migrate``; again it changes nothing.
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
