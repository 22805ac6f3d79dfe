"""The way behind stores that belay_drivers.sql made, for the conformance suite."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

from belay_core.stores import Stores
from belay_testing.harness import Tamper

_HINDER = {
    "sqlite": "CREATE TRIGGER hindering BEFORE UPDATE OF {column} ON belay_runs {when} BEGIN SELECT RAISE({how}); END",
    "postgresql": (
        "CREATE TRIGGER hindering BEFORE UPDATE OF {column} ON belay_runs FOR EACH ROW {when} "
        "EXECUTE FUNCTION hindering()"
    ),
}
_HOW = {
    "sqlite": {"ignore": "IGNORE", "refuse": "ABORT, 'no'"},
    "postgresql": {
        "ignore": "RETURN NULL;",
        "refuse": "RAISE EXCEPTION USING ERRCODE = ''23514'';",
    },
}


class SqlTamper(Tamper):
    """Statements over the very connections of the stores."""

    def __init__(self, stores: Stores) -> None:
        # Stores that are observed stand before those that have the database.
        runs: Any = getattr(stores.runs, "_runs", stores.runs)
        self._database = runs._database
        self._dialect: str = self._database.dialect.name

    async def run(self, *statements: str) -> None:
        def work(tx: Connection) -> None:
            for statement in statements:
                tx.exec_driver_sql(statement)

        await self._database.write(work)

    async def read(self, query: str) -> list[tuple[Any, ...]]:
        rows = await self._database.read(lambda tx: tx.exec_driver_sql(query).all())
        return [tuple(row) for row in rows]

    async def loosen(self, table: str) -> None:
        if self._dialect == "sqlite":
            await self.run("PRAGMA ignore_check_constraints = ON")
            return
        query = f"SELECT conname FROM pg_constraint WHERE conrelid = '{table}'::regclass AND contype = 'c'"  # noqa: S608
        names = [name for (name,) in await self.read(query)]
        await self.run(
            *(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"' for name in names),
            f"ALTER TABLE {table} DISABLE TRIGGER USER",
        )

    async def drop(self, table: str) -> None:
        await self.run(f"DROP TABLE {table}" + ("" if self._dialect == "sqlite" else " CASCADE"))

    async def ignore(self, column: str) -> None:
        await self._hinder(column, "ignore", "")

    async def refuse(self, column: str, run_id: str | None = None) -> None:
        await self._hinder(column, "refuse", "" if run_id is None else f"WHEN (new.run_id = '{run_id}')")

    async def _hinder(self, column: str, how: str, when: str) -> None:
        done = _HOW[self._dialect][how]
        statements = [_HINDER[self._dialect].format(column=column, how=done, when=when)]
        if self._dialect != "sqlite":
            body = f"CREATE FUNCTION hindering() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {done} END'"
            statements.insert(0, body)
        await self.run(*statements)

    async def allow(self) -> None:
        if self._dialect == "sqlite":
            await self.run("DROP TRIGGER hindering")
        else:
            await self.run("DROP TRIGGER hindering ON belay_runs", "DROP FUNCTION hindering")

    @contextmanager
    def sent(self) -> Generator[list[str]]:
        seen: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if "BEGIN" not in statement:
                seen.append(statement)

        targets = {*self._database.sync_engines}
        for target in targets:
            event.listen(target, "before_cursor_execute", note)
        try:
            yield seen
        finally:
            for target in targets:
                event.remove(target, "before_cursor_execute", note)
