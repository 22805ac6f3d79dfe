"""Two streams beside each other: what happened to a run, and who owned it."""

import ast
import json
from pathlib import Path

import pytest

import belay_drivers
from belay_core.admission.journal import RESERVED, RESERVED_PREFIXES
from belay_core.errors import JournalError
from belay_core.ids import RunId
from belay_core.outcomes.journal import Appended
from belay_core.outcomes.runs import AlreadyClaimed, Claimed, FenceLost, NotFound
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.workflow_run import JournalEntry

A = OwnerId("host-a", 101, "owner-a")
B = OwnerId("host-a", 202, "owner-b")
PENDING = RunSnapshot(RunStatus.PENDING)
RUN = RunId("run")


@pytest.fixture
def stores(kit):
    return kit.stores


async def own(stores, run_id=RUN, owner=A):
    await stores.runs.create(run_id, "{}")
    await stores.runs.claim_and_own(run_id, PENDING, owner, int(stores.clock.now()))


async def facts(stores, run_id=RUN):
    """The ownership facts as (what, who, granted)."""
    found = []
    for entry in await stores.journal.ownership(run_id):
        told = json.loads(entry.facts)
        assert set(told) == {"owner", "granted_at_ms"}
        found.append((entry.kind.removeprefix("ownership."), OwnerId(**told["owner"]), told["granted_at_ms"]))
    return found


async def events(stores, run_id=RUN):
    return [entry.kind for entry in await stores.journal.read(run_id)]


async def test_the_owner_adds_events_of_its_own_and_reads_them_in_order(stores):
    await own(stores)
    first = await stores.journal.append(RUN, A, "order.charged", {"amount": 12, "to": "Zoë", "none": None})
    second = await stores.journal.append(RUN, A, "order.shipped", [1, True, "x"])
    assert isinstance(first, Appended)
    assert second == Appended(first.entry + 1)
    told = await stores.journal.read(RUN, after=1)
    assert [(entry.entry, entry.kind, json.loads(entry.facts)) for entry in told] == [
        (first.entry, "order.charged", {"amount": 12, "to": "Zoë", "none": None}),
        (second.entry, "order.shipped", [1, True, "x"]),
    ]
    assert {entry.at_ms for entry in told} == {int(stores.clock.now())}
    assert told[0].run_id == RUN


async def test_nobody_but_the_owner_adds_events(stores):
    assert await stores.journal.append(RUN, A, "x", 1) == NotFound()
    await own(stores)
    for stranger in (B, OwnerId("host-b", 101, "owner-a"), OwnerId("host-a", 101, "other")):
        assert await stores.journal.append(RUN, stranger, "x", 1) == FenceLost()
    await stores.runs.transition_owned(RUN, A, RunStatus.COMPLETED)
    assert await stores.journal.append(RUN, A, "x", 1) == FenceLost()
    assert await events(stores) == ["created"]


async def test_a_part_of_a_stream_is_read_from_behind_an_entry(stores):
    await own(stores)
    for number in range(5):
        await stores.journal.append(RUN, A, "n", number)
    whole = await stores.journal.read(RUN)
    assert [entry.kind for entry in whole] == ["created", *["n"] * 5]
    parts: list[JournalEntry] = []
    while part := await stores.journal.read(RUN, after=parts[-1].entry if parts else 0, limit=2):
        assert len(part) <= 2
        parts += part
    assert tuple(parts) == whole
    assert await stores.journal.read(RunId("unknown")) == ()
    assert await stores.journal.ownership(RunId("unknown")) == ()


async def test_events_and_ownership_never_meet_and_count_together(stores):
    await own(stores)
    await stores.journal.append(RUN, A, "mine", None)
    await stores.runs.transition_owned(RUN, A, RunStatus.SUSPENDED)
    assert await events(stores) == ["created", "mine"]
    assert [what for what, *_ in await facts(stores)] == ["claimed", "activated", "released"]
    both = [*await stores.journal.read(RUN), *await stores.journal.ownership(RUN)]
    assert sorted(entry.entry for entry in both) == [1, 2, 3, 4, 5]


async def test_two_phases_leave_claimed_activated_and_released(stores, belay_clock):
    now = int(belay_clock.now())
    await stores.runs.create(RUN, "{}")
    assert await stores.runs.claim(RUN, PENDING, A, now) == Claimed(now)
    assert await stores.runs.claim(RUN, PENDING, B, now) == AlreadyClaimed()
    await stores.runs.activate(RUN, A, now, PENDING)
    await stores.runs.heartbeat(RUN, A, now)
    await stores.runs.heartbeat(RUN, B, now)
    await stores.runs.transition_owned(RUN, A, RunStatus.COMPLETED)
    assert await facts(stores) == [("claimed", A, now), ("activated", A, now), ("released", A, None)]
    assert await events(stores) == ["created"]


async def test_owning_at_once_again_and_from_the_dead(stores, belay_clock):
    now = int(belay_clock.now())
    await own(stores)
    belay_clock.advance(30_001)
    later = now + 30_001
    mine = (await stores.runs.get(RUN)).snapshot
    await stores.runs.claim_and_own(RUN, mine, A, later)
    expected = [("claimed", A, now), ("activated", A, now), ("released", A, None)]
    expected += [("claimed", A, later), ("activated", A, later)]
    assert await facts(stores) == expected
    belay_clock.advance(30_001)
    stolen = later + 30_001
    proof = LivenessEvidence(A, stolen, "same-host-pid-dead")
    await stores.runs.claim_and_own(RUN, (await stores.runs.get(RUN)).snapshot, B, stolen, proof)
    assert (await facts(stores))[5:] == [("stolen", B, stolen), ("activated", B, stolen)]


async def test_claims_given_up_recovered_or_overtaken(stores, belay_clock):
    now = int(belay_clock.now())
    for name in ("given-up", "recovered", "stolen"):
        await stores.runs.create(RunId(name), "{}")
    await stores.runs.claim(RunId("given-up"), PENDING, A, now)
    await stores.runs.abandon_claim(RunId("given-up"), A, now)
    assert (await facts(stores, RunId("given-up")))[1:] == [("released", A, now)]
    await stores.runs.claim(RunId("recovered"), PENDING, A, now)
    await stores.runs.claim_and_own(RunId("stolen"), PENDING, A, now)
    read = (await stores.runs.get(RunId("stolen"))).snapshot
    belay_clock.advance(30_001)
    later = now + 30_001
    proof = LivenessEvidence(A, later, "same-host-pid-dead")
    await stores.runs.recover_claim(RunId("recovered"), A, now, B, later, proof)
    assert (await facts(stores, RunId("recovered")))[1:] == [("expired", A, now)]
    await stores.runs.steal(RunId("stolen"), read, B, later, proof)
    await stores.runs.heartbeat(RunId("stolen"), A, later)
    await stores.runs.activate(RunId("stolen"), B, later, read)
    assert (await facts(stores, RunId("stolen")))[2:] == [("stolen", B, later), ("released", B, later)]


async def test_facts_go_with_the_write_they_belong_to(stores):
    await stores.runs.create(RUN, "{}")

    class Refused(Exception):
        pass

    async def give_up(inside):
        await inside.runs.claim_and_own(RUN, PENDING, A, int(stores.clock.now()))
        await inside.journal.append(RUN, A, "mine", 1)
        raise Refused

    with pytest.raises(Refused):
        await stores.write(give_up)
    assert await facts(stores) == []
    assert await events(stores) == ["created"]
    assert (await stores.runs.get(RUN)).status is RunStatus.PENDING


async def test_every_change_of_the_contract_but_heartbeats_and_attempts_is_told(stores):
    await own(stores)
    await stores.runs.transition_owned(RUN, A, RunStatus.RUNNING)
    assert await events(stores) == ["created"]
    await stores.runs.transition_owned(RUN, A, RunStatus.RUNNING, '{"n":1}')
    await stores.runs.request_cancel(RUN, 5)
    for _ in range(2):
        assert await stores.runs.acknowledge_cancel(RUN, A, 6)
    assert await events(stores) == ["created", "state_changed", "cancel_requested", "cancel_acknowledged"]


@pytest.mark.parametrize("kind", [*sorted(RESERVED), "ownership.claimed", "belay.new", "Ownership.claimed", "WOKEN"])
async def test_kinds_of_belays_own_are_refused(belay_stores, kind):
    async with belay_stores as stores:
        await own(stores)
        with pytest.raises(JournalError) as refused:
            await stores.journal.append(RUN, A, kind, 1)
        detail = "names a kind of entry that is belay's own"
        assert refused.value.cause == {"field": "kind", "detail": detail}
        assert await events(stores) == ["created"]


def test_every_kind_the_drivers_write_is_reserved():
    written = set()
    for path in Path(belay_drivers.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name.startswith("note") or name in {"Entry", "Change", "_entry", "journal_row"}:
                written |= {
                    each.value
                    for each in node.args
                    if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value != "{}"
                }
    assert {"created", "woken", "decided", "settled", "parent_deleted", "cancel_acknowledged"} <= written
    assert {kind for kind in written if not kind.startswith(RESERVED_PREFIXES)} <= RESERVED


TEXT = "must be well-formed durable text"
NAME = "must be well-formed text without NUL, 1 to 512 bytes of UTF-8"
BAD = [
    ("append", ("", A, "x", 1), "run_id", TEXT),
    ("append", (RUN, None, "woken", 1), "owner", "must be an inert owner record"),
    ("append", (RUN, A, "", 1), "kind", NAME),
    ("append", (RUN, A, "x" * 513, 1), "kind", NAME),
    ("append", (RUN, A, "woken", float("inf")), "kind", "names a kind of entry that is belay's own"),
    ("append", (RUN, A, "x", float("inf")), "facts", "contains a non-finite number"),
    ("append", (RUN, A, "x", (1,)), "facts", "contains a non-JSON tuple"),
    ("append", (RUN, A, "x", "x" * 2**20), "facts", "exceeds the JSON byte limit"),
    ("read", (1,), "run_id", TEXT),
    ("read", (RUN, -1), "after", "must be a non-negative safe integer"),
    ("read", (RUN, 0, 0), "limit", "must be an integer from 1 to 1000"),
    ("read", (RUN, 0, 1001), "limit", "must be an integer from 1 to 1000"),
    ("ownership", (RUN, True), "after", "must be a non-negative safe integer"),
    ("ownership", (RUN, 0, 1.0), "limit", "must be an integer from 1 to 1000"),
]


@pytest.mark.parametrize(("method", "given", "field", "detail"), BAD)
async def test_the_first_bad_parameter_is_named(belay_stores, method, given, field, detail):
    async with belay_stores as stores:
        await own(stores)
        with pytest.raises(JournalError) as refused:
            await getattr(stores.journal, method)(*given)
        assert str(refused.value) == f"invalid_run: Journal.{method}: run input is invalid"
        assert refused.value.cause == {"field": field, "detail": detail}
        assert await events(stores) == ["created"]
