"""What runs wait for: declared by their owners, cleared by anybody, listed in the order in which they are due."""

import json

import pytest

from belay_core import commands
from belay_core.errors import WaitingStoreError
from belay_core.ids import RunId
from belay_core.outcomes.runs import Activated, NotFound, Transitioned
from belay_core.outcomes.waiting import NotWaiting, Parked, Woken
from belay_core.records.attempt import ABSENT, JsonValue
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.waiting import Wait, WaitingRow

A = OwnerId("host-a", 101, "owner-a")
B = OwnerId("host-a", 202, "owner-b")
PENDING = RunSnapshot(RunStatus.PENDING)
QUESTION: dict[str, JsonValue] = {"kind": "human", "prompt": "Soll ich?", "attempt": 1, "none": None}
LONG = RunId("長" * 1000)


async def own(stores, run_id, owner=A):
    now = int(stores.clock.now())
    await stores.runs.create(run_id, "{}")
    assert await stores.runs.claim_and_own(run_id, PENDING, owner, now) == Activated()


async def parked(stores, run_id, *args, suspend=True, **more):
    """A run of the contract that waits."""
    await own(stores, run_id)
    answer = await stores.waiting.park(run_id, Wait(*args, **more), A)
    assert isinstance(answer, Parked)
    if suspend:
        assert await stores.runs.transition_owned(run_id, A, RunStatus.SUSPENDED) == Transitioned()
    return answer.row


async def listed(stores, **filters):
    return [row.run_id for row in await stores.waiting.waiting_runs(**filters)]


async def kinds(stores, run_id):
    return [entry.kind for entry in await stores.journal.read(run_id)]


@pytest.fixture
def stores(kit):
    return kit.stores


async def test_the_owner_parks_and_the_wait_outlives_its_ownership(stores):
    run_id = RunId("run")
    row = await parked(stores, run_id, "human", 500, "token", QUESTION, suspend=False)
    assert row == WaitingRow(run_id, RunStatus.RUNNING, "human", 500, "token", QUESTION, None)
    assert await stores.waiting.waiting(run_id) == row
    assert await stores.runs.transition_owned(run_id, A, RunStatus.SUSPENDED) == Transitioned()
    suspended = await stores.waiting.waiting(run_id)
    assert suspended == WaitingRow(run_id, RunStatus.SUSPENDED, "human", 500, "token", QUESTION, None)
    assert await kinds(stores, run_id) == ["created", "parked"]
    entry = (await stores.journal.read(run_id))[-1]
    assert json.loads(entry.facts) == {"reason": "human", "token": "token", "wake_at_ms": 500}


async def test_parking_again_clears_what_is_left_out(stores):
    run_id = RunId("run")
    await parked(stores, run_id, "human", 500, "token", QUESTION, suspend=False)
    assert await stores.waiting.park(run_id, Wait("event"), A) == Parked(
        WaitingRow(run_id, RunStatus.RUNNING, "event", None, None, ABSENT, None)
    )
    assert (await stores.waiting.waiting(run_id)).request is ABSENT


async def test_a_question_may_be_null_which_is_not_none_at_all(stores):
    row = await parked(stores, RunId("run"), "human", request=None)
    assert row.request is None
    assert (await stores.waiting.waiting(RunId("run"))).request is None


async def test_nobody_but_the_owner_parks(stores):
    run_id = RunId("run")
    assert await stores.waiting.park(run_id, Wait("event"), A) == NotFound()
    await own(stores, run_id)
    for stranger in (B, OwnerId("host-a", 101, "other"), OwnerId("host-a", 102, "owner-a")):
        assert await stores.waiting.park(run_id, Wait("event"), stranger) == NotFound()
    await stores.runs.transition_owned(run_id, A, RunStatus.SUSPENDED)
    assert await stores.waiting.park(run_id, Wait("event"), A) == NotFound()
    assert await stores.waiting.waiting(run_id) is None
    assert await kinds(stores, run_id) == ["created"]


async def test_waking_gives_what_was_waited_for_and_happens_once(stores):
    run_id = LONG
    row = await parked(stores, run_id, "human", 500, "token", QUESTION)
    woken = await stores.waiting.wake(run_id)
    assert isinstance(woken, Woken)
    assert (woken.previous.run_id, woken.previous.request, woken.previous.wake_at_ms) == (run_id, QUESTION, 500)
    assert woken.previous.status is RunStatus.SUSPENDED
    assert row.status is RunStatus.RUNNING
    assert await stores.waiting.wake(run_id) == NotWaiting()
    assert await stores.waiting.waiting(run_id) is None
    assert await stores.waiting.wake(RunId("missing")) == NotFound()
    assert await kinds(stores, run_id) == ["created", "parked", "woken"]
    assert (await stores.runs.get(run_id)).status is RunStatus.SUSPENDED


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
async def test_a_run_that_is_over_waits_for_nothing_and_never_changes(stores, status):
    run_id = RunId("run")
    await parked(stores, run_id, "event", suspend=False)
    await stores.runs.transition_owned(run_id, A, status)
    before = await kinds(stores, run_id)
    assert await stores.waiting.waiting(run_id) is None
    assert await listed(stores) == []
    assert await stores.waiting.wake(run_id) == NotWaiting()
    assert await kinds(stores, run_id) == before


async def test_waiting_runs_stand_in_the_order_in_which_they_are_due(stores):
    for name, wake in (("d", 300), ("c", None), ("b", 100), ("a", 300), ("e", 200)):
        await parked(stores, RunId(name), "timer" if wake else "event", wake)
    await own(stores, RunId("busy"))
    await parked(stores, LONG, "timer", 250, suspend=False)
    assert await listed(stores) == ["b", "e", LONG, "a", "d", "c"]
    assert await listed(stores, due_before_ms=250) == ["b", "e", LONG]
    assert await listed(stores, due_before_ms=249) == ["b", "e"]
    assert await listed(stores, reason="event") == ["c"]
    assert await listed(stores, reason="tim") == []
    await stores.runs.request_cancel(RunId("a"), 7)
    await stores.runs.request_cancel(RunId("busy"), 7)
    assert await listed(stores, cancel_requested=True) == ["a"]
    assert await listed(stores, cancel_requested=False, reason="timer") == ["b", "e", LONG, "d"]
    [row] = await stores.waiting.waiting_runs(cancel_requested=True)
    assert row.cancel_requested_at_ms == 7


async def test_runs_parked_by_the_engine_are_seen_and_woken_for_the_next_worker(kit):
    lease = await kit.own()
    await kit.park(lease, "timer", token="nap#1", wake_at_ms=kit.now + 60_000, request='{"q":1}')
    row = await kit.stores.waiting.waiting(RunId("run-1"))
    expected = (RunStatus.SUSPENDED, "timer", kit.now + 60_000, "nap#1", {"q": 1})
    assert (row.status, row.reason, row.wake_at_ms, row.token, row.request) == expected
    assert await listed(kit.stores) == ["run-1"]
    assert await kit.acquire() == []
    assert await kit.stores.waiting.wake(RunId("run-1")) == Woken(row)
    [taken] = await kit.acquire()
    assert taken.run.waiting is None
    assert (await kit.kinds())[-1] == "woken"


async def test_waking_a_workflows_run_tells_the_workers_of_this_process(kit):
    lease = await kit.own()
    await kit.park(lease, "event")
    with kit.stores.wakes.listening() as event:
        await kit.stores.waiting.wake(RunId("run-1"))
        assert event.is_set()


async def test_waking_a_running_run_is_news_to_its_owner(kit):
    await kit.start("run-1")
    [taken] = await kit.acquire()
    assert isinstance(await kit.stores.waiting.park(RunId("run-1"), Wait("event"), taken.lease.owner), Parked)
    assert (await kit.renew(taken.lease)).news_ms is None
    await kit.stores.waiting.wake(RunId("run-1"))
    assert (await kit.renew(taken.lease)).news_ms is not None


async def test_the_engine_leaves_waits_of_the_contract_alone(kit):
    await parked(kit.stores, RunId("bare"), "timer", 1)
    assert (await kit.engine.wake(commands.Wake())).count == 0
    assert await kinds(kit.stores, RunId("bare")) == ["created", "parked"]


REASON = "must be well-formed text without NUL, 1 to 512 bytes of UTF-8"
BAD = [
    ("park", ("run", Wait("長" * 171), A), "waiting.reason", REASON),
    ("park", (1, Wait("event"), A), "run_id", "must be well-formed durable text"),
    ("park", ("run", "event", A), "waiting", "must be an inert data record"),
    ("park", ("run", {"reason": "event", "extra": 1}, A), "waiting", "must be an inert data record"),
    ("park", ("run", Wait(""), A), "waiting.reason", REASON),
    ("park", ("run", Wait("r", -1), A), "waiting.wake_at_ms", "must be a non-negative safe integer"),
    (
        "park",
        ("run", {"reason": "r", "wake_at_ms": 1.0}, A),
        "waiting.wake_at_ms",
        "must be a non-negative safe integer",
    ),
    ("park", ("run", Wait("r", True), A), "waiting.wake_at_ms", "must be a non-negative safe integer"),
    ("park", ("run", Wait("r", 1, ""), A), "waiting.token", "must be well-formed durable text"),
    ("park", ("run", Wait("r", request=float("nan")), A), "waiting.request", "contains a non-finite number"),
    ("park", ("run", Wait("r", request="x" * 2**20), A), "waiting.request", "exceeds the JSON byte limit"),
    ("park", ("run", Wait("r"), "me"), "owner", "must be an inert owner record"),
    ("park", ("run", Wait(""), "me"), "waiting.reason", REASON),
    ("park", ("run", Wait("r"), OwnerId("h", -1, "n")), "owner", "must be a valid owner identity"),
    ("wake", ("\ud800",), "run_id", "must be well-formed durable text"),
    ("waiting", ("",), "run_id", "must be well-formed durable text"),
    ("waiting_runs", ("",), "reason", REASON),
    ("waiting_runs", ("", -1), "reason", REASON),
    ("waiting_runs", (None, -1), "due_before_ms", "must be a non-negative safe integer"),
    ("waiting_runs", (None, None, 1), "cancel_requested", "must be a boolean"),
]


@pytest.mark.parametrize(("method", "given", "field", "detail"), BAD)
async def test_the_first_bad_parameter_is_named_and_nothing_is_written(belay_stores, method, given, field, detail):
    async with belay_stores as stores:
        await own(stores, RunId("run"))
        with pytest.raises(WaitingStoreError) as refused:
            await getattr(stores.waiting, method)(*given)
        assert str(refused.value) == f"invalid_run: WaitingStore.{method}: run input is invalid"
        assert refused.value.cause == {"field": field, "detail": detail}
        assert await kinds(stores, RunId("run")) == ["created"]


async def test_a_damaged_request_is_told_without_its_text(stores, raw):
    await parked(stores, RunId("run"), "human", request=1)
    await raw(stores, "UPDATE belay_run_values SET waiting_request = '{secret'")
    for call in (
        stores.waiting.waiting(RunId("run")),
        stores.waiting.waiting_runs(),
        stores.waiting.wake(RunId("run")),
    ):
        with pytest.raises(WaitingStoreError, match=r"decode_failed.*belay_run_values row") as told:
            await call
        assert "secret" not in str(told.value)
