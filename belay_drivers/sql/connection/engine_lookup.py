"""Access to the engines, for code that counts, measures or disturbs statements.

The engines of opened stores are SQLAlchemy's; its documented events (``before_cursor_execute``, ``commit``, the
pool's ``checkin``) report every statement. This function is the only supported way to them.
"""

from collections.abc import Iterable

from sqlalchemy import Engine

from belay_core.stores.bundle import Stores
from belay_drivers.sql.stores.runs import SqlRunStore


def engines_of(stores: Stores) -> tuple[Engine, ...]:
    """The engines of the stores, each once; empty for stores of a driver without SQL."""
    runs = stores.runs
    return tuple(_distinct(runs.engines)) if isinstance(runs, SqlRunStore) else ()


def _distinct(engines: Iterable[Engine]) -> Iterable[Engine]:
    # An engine with other options is another object with the same pool, and gets the first one's events.
    pools: set[int] = set()
    for engine in engines:
        if id(engine.pool) not in pools:
            pools.add(id(engine.pool))
            yield engine
