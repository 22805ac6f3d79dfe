"""What the engine asks of its store, one frozen command each (kernel 1, 5, 11 and 26).

Owned commands carry the lease they were made under; a store accepts one only while that lease holds, and renews it
in the same write. Moments a store decides by (lapse, stale, due) are read from its own clock.
"""

from belay_core.commands.owned import Ask, Lapse, Park, Record, Renew, Settle, Sleep, Withdraw
from belay_core.commands.unowned import (
    Acquire,
    Cancel,
    Decide,
    GiveUp,
    Happened,
    History,
    ListApprovals,
    ListRuns,
    Resolution,
    Resolve,
    Retry,
    RunHistory,
    Start,
    Wake,
)

__all__ = [
    "Acquire",
    "Ask",
    "Cancel",
    "Decide",
    "GiveUp",
    "Happened",
    "History",
    "Lapse",
    "ListApprovals",
    "ListRuns",
    "Park",
    "Record",
    "Renew",
    "Resolution",
    "Resolve",
    "Retry",
    "RunHistory",
    "Settle",
    "Sleep",
    "Start",
    "Wake",
    "Withdraw",
]
