"""SQLite's feed: one writer at a time, so the order of positions is the order of commits."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, text

from belay_core.records.changes import START, FeedPosition
from belay_drivers.sql.stores.views import Feed

_HEAD: Final = text("SELECT max(position) FROM belay_journal")
_SINCE: Final = text("""
SELECT j.position, j.run_id, j.entry, j.at, j.kind, j.facts, v.full_id
FROM belay_journal j LEFT JOIN belay_run_values v ON v.run_id = j.run_id
WHERE j.position > :b_position
  AND NOT EXISTS (SELECT 1 FROM belay_journal l WHERE l.run_id = j.run_id AND l.entry > j.entry)
ORDER BY j.position LIMIT :b_limit
""")


class SqliteFeed(Feed):
    """The journal by its positions, which are never used twice."""

    def head(self, tx: Connection) -> FeedPosition:
        """The place of the newest entry."""
        newest = tx.execute(_HEAD).scalar_one()
        return START if newest is None else _spelled(newest)

    def since(self, tx: Connection, position: FeedPosition, limit: int) -> Sequence[RowMapping]:
        """The latest entry of each run that changed behind this place, in order."""
        bound = {"b_position": int(position.partition(".")[0], 16), "b_limit": limit}
        return tx.execute(_SINCE, bound).mappings().all()

    def place_of(self, row: RowMapping) -> FeedPosition:
        """The place of an entry that was read."""
        return _spelled(row["position"])


def _spelled(position: int) -> FeedPosition:
    return FeedPosition(f"{position:016x}")
