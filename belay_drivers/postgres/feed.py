"""PostgreSQL's feed: by transaction, and only below the oldest one that still runs (kernel 11).

Transaction ids are assigned at the first write, and transactions commit in any order. A reader up to the newest id
would miss what an older transaction commits later; below the oldest running one nothing can appear any more.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, text

from belay_core.records.changes import START, FeedPosition
from belay_drivers.sql.stores.views import Feed

_BELOW_HORIZON: Final = "xid < pg_snapshot_xmin(pg_current_snapshot())"
_HEAD: Final = text(f"""
SELECT CAST(xid AS text) AS xid, run_id, entry FROM belay_journal
WHERE {_BELOW_HORIZON}
ORDER BY belay_journal.xid DESC, run_id DESC, entry DESC LIMIT 1
""")  # noqa: S608  made of constants
# Looked up run by run: for a join the planner would read the whole journal, if it has no statistics.
_SINCE: Final = text(f"""
SELECT CAST(j.xid AS text) AS xid, j.run_id, j.entry, j.at, j.kind, j.facts,
  (SELECT v.full_id FROM belay_run_values v WHERE v.run_id = j.run_id) AS full_id
FROM belay_journal j
WHERE (j.xid, j.run_id, j.entry) >
    (CAST(CAST(:b_xid AS text) AS xid8), CAST(:b_run AS text) COLLATE "C", CAST(:b_entry AS bigint))
  AND j.{_BELOW_HORIZON}
  AND j.entry = (
    SELECT l.entry FROM belay_journal l WHERE l.run_id = j.run_id AND l.{_BELOW_HORIZON}
    ORDER BY l.entry DESC LIMIT 1
  )
ORDER BY j.xid, j.run_id, j.entry LIMIT CAST(:b_limit AS bigint)
""")  # noqa: S608  made of constants


class PostgresFeed(Feed):
    """The journal by transaction, run and entry.

    The position is that of an entry that was read, never the horizon itself: after a crash the server may reuse the
    ids of transactions that left nothing.
    """

    def head(self, tx: Connection) -> FeedPosition:
        """The position of the newest entry below the horizon."""
        row = tx.execute(_HEAD).mappings().one_or_none()
        return START if row is None else self.place_of(row)

    def since(self, tx: Connection, position: FeedPosition, limit: int) -> Sequence[RowMapping]:
        """The latest entry of each run that changed after this position, in order."""
        xid, _, rest = position.partition(".")
        run_key, _, entry = rest.partition(".")
        bound = {
            "b_xid": str(int(xid, 16)),
            "b_run": bytes.fromhex(run_key).decode(),
            "b_entry": int(entry or "0", 16),
            "b_limit": limit,
        }
        return tx.execute(_SINCE, bound).mappings().all()

    def place_of(self, row: RowMapping) -> FeedPosition:
        """The position of an entry that was read; numbers have a fixed width, so that texts sort like them."""
        return FeedPosition(f"{int(row['xid']):016x}.{row['run_id'].encode().hex()}.{row['entry']:014x}")
