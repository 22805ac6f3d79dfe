"""The points around database traffic: before and after each statement, before and after each commit.

They are SQLAlchemy's documented events on the engines that ``engines_of`` in
``belay_drivers.sql.connection.engine_lookup`` names.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine, event

_WORDS = 4
_COMMITTED = "belay_testing_committed"

Strike: TypeAlias = Callable[[], None]


class Vanished(Exception):
    """The process that sent the statement is gone: its transaction is rolled back with its connection."""


class Boundaries:
    """Counts boundaries while it observes engines, and calls ``strike`` at the ``at``-th, counted from 1.

    When ``strike`` returns, the process counts as gone: every later statement raises ``Vanished`` and is not sent.
    With ``of``, only boundaries at which ``of()`` is true count.
    """

    def __init__(self, *, at: int = 0, strike: Strike | None = None, of: Callable[[], bool] = lambda: True) -> None:
        self.names: list[str] = []
        """The boundaries passed, in order: ``before SELECT ...``, ``after COMMIT``."""
        self.gone = False
        self._at = at
        self._strike = strike
        self._of = of

    @contextmanager
    def observing(self, engines: Iterable[Engine]) -> Generator[None]:
        """Count the boundaries of these engines until the block is left."""
        listening = [each for engine in engines for each in self._events(engine)]
        for target, name, listener in listening:
            event.listen(target, name, listener)
        try:
            yield
        finally:
            for target, name, listener in listening:
                event.remove(target, name, listener)

    def _events(self, engine: Engine) -> list[tuple[Any, str, Callable[..., None]]]:
        def before(_connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
            self._meet(f"before {_words(statement)}")

        def after(_connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
            self._meet(f"after {_words(statement)}")

        def commit(connection: Connection) -> None:
            self._meet("before COMMIT")
            connection.info[_COMMITTED] = self._of()

        def back(_dbapi_connection: Any, record: Any) -> None:
            # There is no event after a commit; the connection's return to its pool is the next one.
            if record.info.pop(_COMMITTED, False) and not self.gone:
                self._count("after COMMIT")

        return [
            (engine, "before_cursor_execute", before),
            (engine, "after_cursor_execute", after),
            (engine, "commit", commit),
            (engine.pool, "checkin", back),
        ]

    def _meet(self, name: str) -> None:
        if not self._of():
            return
        if not self.gone:
            self._count(name)
        if self.gone:
            raise Vanished

    def _count(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self._at:
            if self._strike is not None:
                self._strike()
            self.gone = True


def _words(statement: str) -> str:
    return " ".join(statement.split()[:_WORDS])
