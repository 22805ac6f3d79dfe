"""The numbered behaviours of the stores, and the mark that names those a test proves."""

from typing import Final

import pytest

MARK: Final = "belay_case"
"""The name of the mark that ``case`` makes."""

CASES: Final = {
    1: "a created run reads back pending, with nothing but its state",
    2: "a clock between two milliseconds stamps the earlier one",
    4: "ill-formed ids and states that are no JSON text are refused before anything is stored",
    5: "a known id and an unknown parent are constraints, an unknown run is not_found_row",
    7: "a missing table is persistence_failed",
    8: "half a lineage, an unknown option and a reserved id are refused",
    10: "a run is reserved once",
    11: "a running run is never claimable, nor is one that is over",
    13: "an owner may be claimed for by another process",
    14: "a fresh owner is reported before evidence is asked for",
    16: "a run that moved on is not claimed by what was read before",
    17: "a run that is gone or reserved is reported before evidence is asked for",
    19: "a claim that was recovered is none, even where its claimant claimed again",
    20: "only the stale are stolen from, with evidence about them, and keep the run until activation",
    22: "an owner that sends a heartbeat after a steal keeps its run",
    23: "an owner is not reconfirmed while its run is claimed, and lost once it is activated",
    25: "exactly thirty seconds old is fresh for claim_and_own, recover_claim and steal",
    26: "evidence of another moment or of the wrong kind does not count",
    28: "lease-expired is evidence from any host, once the lease has expired",
    29: "a row will do as a snapshot, a foreign object will not and is never asked",
    31: "a late heartbeat counts and never moves the stamp back",
    32: "a moment that is no safe integer is refused",
    34: "only the owner moves a run on, and a state left out stays",
    35: "an unknown status, pending and a bad state are refused before the run is read",
    36: "suspending under a pending steal clears owner and claim",
    37: "after that the run can be claimed",
    38: "each end stamps the moment and clears the owner, and can be reached once",
    40: "a snapshot that breaks the ownership invariant is refused",
    41: "bad evidence and bad guards are refused, an empty guard is no guard",
    43: "the first cancel request is kept, whatever the clock says",
    44: "of three concurrent cancel requests one counts",
    46: "a guard is judged with the write",
    47: "the fence is judged before the guard",
    49: "a cancel request that keeps missing a live run is persistence_failed",
    50: "a status that is none is decode_failed",
    52: "a run that has a lineage's name is none of its rounds",
    53: "settled rounds are left alone, and the request of the latest live one is returned",
    55: "a lineage is asked to stop as a whole or not at all",
    56: "asking a lineage costs the same number of statements whatever its length",
    58: "bad ids and moments are refused by every operation of a lineage",
    59: "the change feed names each run once, in order, from one source",
    61: "a run keeps its id, and a refused change leaves no trace in the feed",
    62: "migrating twice applies nothing the second time, and the migrations have their names",
    64: "an upgrade that breaks off leaves nothing, and old rows stay readable",
    65: "an attempt reads back equal, and what was absent is absent",
    67: "an attempt put again is the same in any key order, and a conflict where a value differs",
    68: "a heartbeat keeps the later stamp and the last checkpoint",
    70: "the first end of an attempt is kept",
    71: "what an end leaves out stays, what it says replaces",
    73: "after a takeover only the new owner finishes",
    74: "finishing while the run ends is done or lost, and the attempt agrees",
    76: "an upsert replaces what is in progress and nothing that has ended",
    77: "bad options are refused when the store is made",
    79: "a bad identity is refused in the fixed words of its operation",
    80: "a bad owner is refused by every write, and an owner is read once",
    82: "damaged columns are decode_failed, and a database's failure is reported without its text",
    83: "an attempt will do as its id, and JSON is admitted exactly to its limits",
    85: "work ends after nineteen seconds without a confirmed heartbeat, and not before",
    86: "work ends at once where its run is gone, and a late confirmation starts the time anew",
    88: "an untouched lease is reconfirmed, one that was claimed lapses",
    89: "a reconfirmation that hangs ends the work a second later, one that fails at once",
    91: "each change of ownership leaves its fact in a stream of its own, refusals leave none",
    92: "a claim is no ownership, and only the owner in the row may write",
    94: "every operation leaves its span with its outcome",
    95: "a dead owner's run is taken over once it is stale, and not before",
    97: "a crash between a step's record and what follows it repeats no completed step",
    98: "an owner that was replaced writes nothing, and its result is discarded",
    100: "a cancel request reaches a run without an owner, survives, and ends it cancelled",
}
"""The behaviour of each number. Numbers are missing on purpose."""


def case(*numbers: int) -> pytest.MarkDecorator:
    """Marks a test as the proof of these behaviours; raises ``KeyError`` for a number that is none of ``CASES``."""
    for number in numbers:
        CASES[number]
    mark: pytest.MarkDecorator = getattr(pytest.mark, MARK)
    return mark(*numbers)
