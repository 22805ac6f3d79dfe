"""What the auxiliary stores refuse: the error names the first bad parameter, and nothing is written."""

from typing import Any, Final

import pytest

from belay_core.errors import JournalError, StoreError
from belay_core.ids import RunId
from belay_core.records.changes import START
from belay_core.records.owner import OwnerId
from belay_core.records.waiting import Wait
from belay_core.stores.changes import MOST_RUNS, MOST_SNAPSHOTS
from belay_core.stores.journal import RESERVED
from belay_testing.conformance.auxiliary import ELSEWHERE, kinds
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.parts import A, R, own

TEXT: Final = "must be well-formed durable text"
NAME: Final = "must be well-formed text without NUL, 1 to 512 bytes of UTF-8"
MOMENT: Final = "must be a non-negative safe integer"
RECORD: Final = "must be an inert data record"
PAGE: Final = "must be an integer from 1 to 1000"
RUNS: Final = f"must be an integer from 1 to {MOST_RUNS}"
SOURCE: Final = "must be the name of a source"
POSITION: Final = "must be a position of a feed"
CURSOR: Final = "must be a cursor of a page of runs"
MINE: Final = "names a kind of entry that is belay's own"

BAD: Final[list[tuple[str, tuple[Any, ...], str, str]]] = [
    ("waiting.park", ("run", Wait("長" * 171), A), "waiting.reason", NAME),
    ("waiting.park", (1, Wait("event"), A), "run_id", TEXT),
    ("waiting.park", ("run", "event", A), "waiting", RECORD),
    ("waiting.park", ("run", {"reason": "event", "extra": 1}, A), "waiting", RECORD),
    ("waiting.park", ("run", Wait(""), A), "waiting.reason", NAME),
    ("waiting.park", ("run", Wait("r", -1), A), "waiting.wake_at_ms", MOMENT),
    ("waiting.park", ("run", {"reason": "r", "wake_at_ms": 1.0}, A), "waiting.wake_at_ms", MOMENT),
    ("waiting.park", ("run", Wait("r", True), A), "waiting.wake_at_ms", MOMENT),
    ("waiting.park", ("run", Wait("r", 1, ""), A), "waiting.token", TEXT),
    ("waiting.park", ("run", Wait("r", request=float("nan")), A), "waiting.request", "contains a non-finite number"),
    ("waiting.park", ("run", Wait("r", request="x" * 2**20), A), "waiting.request", "exceeds the JSON byte limit"),
    ("waiting.park", ("run", Wait("r"), "me"), "owner", "must be an inert owner record"),
    ("waiting.park", ("run", Wait(""), "me"), "waiting.reason", NAME),
    ("waiting.park", ("run", Wait("r"), OwnerId("h", -1, "n")), "owner", "must be a valid owner identity"),
    ("waiting.wake", ("\ud800",), "run_id", TEXT),
    ("waiting.waiting", ("",), "run_id", TEXT),
    ("waiting.waiting_runs", ("",), "reason", NAME),
    ("waiting.waiting_runs", ("", -1), "reason", NAME),
    ("waiting.waiting_runs", (None, -1), "due_before_ms", MOMENT),
    ("waiting.waiting_runs", (None, None, 1), "cancel_requested", "must be a boolean"),
    ("journal.append", ("", A, "x", 1), "run_id", TEXT),
    ("journal.append", (R, None, "woken", 1), "owner", "must be an inert owner record"),
    ("journal.append", (R, A, "", 1), "kind", NAME),
    ("journal.append", (R, A, "x" * 513, 1), "kind", NAME),
    ("journal.append", (R, A, "woken", float("inf")), "kind", MINE),
    ("journal.append", (R, A, "x", float("inf")), "facts", "contains a non-finite number"),
    ("journal.append", (R, A, "x", (1,)), "facts", "contains a non-JSON tuple"),
    ("journal.append", (R, A, "x", "x" * 2**20), "facts", "exceeds the JSON byte limit"),
    ("journal.read", (1,), "run_id", TEXT),
    ("journal.read", (R, -1), "after", MOMENT),
    ("journal.read", (R, 0, 0), "limit", PAGE),
    ("journal.read", (R, 0, 1001), "limit", PAGE),
    ("journal.ownership", (R, True), "after", MOMENT),
    ("journal.ownership", (R, 0, 1.0), "limit", PAGE),
    ("changes.changes_since", ("x", "y", 0), "source", SOURCE),
    ("changes.changes_since", (ELSEWHERE.upper() + "A", START), "source", SOURCE),
    ("changes.changes_since", (ELSEWHERE, 0), "position", POSITION),
    ("changes.changes_since", (ELSEWHERE, "0"), "position", POSITION),
    ("changes.changes_since", (ELSEWHERE, f"{START}.ff.{'0' * 14}"), "position", POSITION),
    ("changes.changes_since", (ELSEWHERE, f"{START}\n"), "position", POSITION),
    ("changes.changes_since", (ELSEWHERE, f"{START}.00.{'0' * 14}"), "position", POSITION),
    ("changes.changes_since", (ELSEWHERE, f"{START}.610062.{'0' * 14}"), "position", POSITION),
    ("changes.changes_since", (ELSEWHERE, START, 0), "limit", PAGE),
    ("changes.changes_since", (ELSEWHERE, START, 1001), "limit", PAGE),
    ("changes.changes_since", (ELSEWHERE, START, True), "limit", PAGE),
    ("changes.snapshot", ("abc",), "run_ids", "must be a list of run ids"),
    ("changes.snapshot", (["a"] * (MOST_SNAPSHOTS + 1),), "run_ids", f"must be at most {MOST_SNAPSHOTS}"),
    ("changes.snapshot", (["a", ""],), "run_id", TEXT),
    ("changes.list_runs", ("pending",), "filters", RECORD),
    ("changes.list_runs", ({"status": "nope"}, 0), "filters.status", "violates the durable contract"),
    ("changes.list_runs", ({"workflow": ""},), "filters.workflow", NAME),
    ("changes.list_runs", ({"parent_run_id": 1},), "filters.parent_run_id", TEXT),
    ("changes.list_runs", (None, 0), "limit", RUNS),
    ("changes.list_runs", (None, MOST_RUNS + 1), "limit", RUNS),
    ("changes.list_runs", (None, 1, "x"), "cursor", CURSOR),
    ("changes.list_runs", (None, 1, f"{ELSEWHERE}.{'0' * 16}.{'0' * 14}.00"), "cursor", CURSOR),
    ("changes.list_runs", (None, 1, f"{ELSEWHERE}.{'0' * 16}.{'0' * 14}.ff"), "cursor", CURSOR),
    ("changes.cancellation", ("\0",), "run_id", TEXT),
    ("retention.delete", ("",), "run_id", TEXT),
]
STORES: Final = {"waiting": "WaitingStore", "journal": "Journal", "changes": "Changes", "retention": "Retention"}


class AuxiliaryBoundaryChapter(Chapter):
    """Bad parameters."""

    @pytest.mark.parametrize("store", STORES)
    async def test_the_first_bad_parameter_is_named_and_nothing_is_written(self, stores: Any, store: str) -> None:
        await own(stores.runs)
        before = await stores.runs.get(R)
        for operation, given, field, detail in BAD:
            role, method = operation.split(".")
            if role == store:
                with pytest.raises(StoreError) as refused:
                    await getattr(getattr(stores, store), method)(*given)
                reported = (str(refused.value), dict(refused.value.cause or {}))
                expected = f"invalid_run: {STORES[store]}.{method}: run input is invalid"
                assert reported == (expected, {"field": field, "detail": detail}), (operation, field)
        assert await kinds(stores) == ["created"]
        assert await stores.runs.get(R) == before

    async def test_kinds_of_belays_own_are_refused(self, stores: Any) -> None:
        await own(stores.runs)
        for kind in (*sorted(RESERVED), "ownership.claimed", "belay.new", "Ownership.claimed", "WOKEN"):
            with pytest.raises(JournalError) as refused:
                await stores.journal.append(R, A, kind, 1)
            assert dict(refused.value.cause or {}) == {"field": "kind", "detail": MINE}
        assert await kinds(stores) == ["created"]

    async def test_the_longest_of_everything_is_let_in(self, stores: Any) -> None:
        await own(stores.runs)
        longest = "x" * 512
        value = "x" * (2**20 - 2)
        await stores.waiting.park(R, Wait(longest, 2**53 - 1, "長" * 1_000, value), A)
        row = await stores.waiting.waiting(R)
        assert (row.reason, row.wake_at_ms, row.request) == (longest, 2**53 - 1, value)
        assert [found.run_id for found in await stores.waiting.waiting_runs(longest, 2**53 - 1)] == [R]
        await stores.journal.append(R, A, longest, value)
        assert (await kinds(stores))[-1] == longest
        many = await stores.changes.snapshot([RunId(f"run-{number}") for number in range(MOST_SNAPSHOTS)])
        assert len(many.runs) == MOST_SNAPSHOTS
