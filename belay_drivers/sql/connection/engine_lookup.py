"""A hook for whoever counts, measures or disturbs what is sent to a database.

The engines of opened stores are SQLAlchemy's; its documented events (``before_cursor_execute``, ``commit``, the
pool's ``checkin``) tell of every statement. This is the one way to them that is promised.
"""

from collections.abc import Iterable

from sqlalchemy import Engine

from belay_core.stores.bundle import Stores
from belay_drivers.sql.stores.runs import SqlRunStore


def engines_of(stores: Stores) -> tuple[Engine, ...]:
    """The engines the stores send through, each once; none where the stores are those of no SQL driver."""
    runs = stores.runs
    return tuple(_distinct(runs.engines)) if isinstance(runs, SqlRunStore) else ()


def _distinct(engines: Iterable[Engine]) -> Iterable[Engine]:
    # An engine with other options is another object with the same pool, and hears the first one's events.
    pools: set[int] = set()
    for engine in engines:
        if id(engine.pool) not in pools:
            pools.add(id(engine.pool))
            yield engine
