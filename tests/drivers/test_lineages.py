"""Lineages and cancellation (cases 43 to 58)."""

import asyncio

import pytest

from belay_core.errors import RunStoreError
from belay_core.ids import RunId
from belay_core.outcomes.runs import (
    AlreadyRequested,
    CancelRequested,
    FenceLost,
    GuardFailed,
    NotFound,
    Terminal,
    Transitioned,
)
from belay_core.records.owner import OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus, TransitionGuard

A = OwnerId("host-a", 101, "owner-a")
PENDING = RunSnapshot(RunStatus.PENDING)
R = RunId("run-1")


@pytest.fixture
def runs(kit):
    kit.clock.set(11_000.0)
    return kit.stores.runs


async def chain(runs, *ids, lineage="line"):
    for ordinal, run_id in enumerate(ids):
        await runs.create(run_id, "{}", CreateOptions(lineage_id=lineage, round_ordinal=ordinal))


async def finish(runs, run_id):
    await runs.claim_and_own(run_id, PENDING, A, 11_000)
    assert await runs.transition_owned(run_id, A, "completed") == Transitioned()


async def test_43_the_first_request_stands_whatever_the_clock_says(runs):
    await runs.create(R, "{}")
    assert await runs.request_cancel(R, 500) == CancelRequested(500)
    assert await runs.request_cancel(R, 900) == AlreadyRequested(500)
    assert await runs.request_cancel("missing", 1) == NotFound()
    assert (await runs.get(R)).cancel_requested_at_ms == 500
    await runs.create("fresh", "{}")
    assert await runs.request_cancel("fresh", 1) == CancelRequested(1)
    with pytest.raises(RunStoreError, match="invalid_run"):
        await runs.request_cancel("fresh", -1)


async def test_44_of_three_requests_at_once_one_counts(runs):
    await runs.create(R, "{}")
    answers = await asyncio.gather(*(runs.request_cancel(R, at) for at in (500, 900, 700)))
    [winner] = [answer.requested_at_ms for answer in answers if isinstance(answer, CancelRequested)]
    assert answers.count(AlreadyRequested(winner)) == 2
    assert (await runs.get(R)).cancel_requested_at_ms == winner


async def test_a_run_that_is_over_says_so_even_with_a_request_on_it(runs):
    await runs.create(R, "{}")
    await runs.request_cancel(R, 5)
    await finish(runs, R)
    assert await runs.request_cancel(R, 9) == Terminal(RunStatus.COMPLETED)


async def test_46_47_the_guard_is_judged_after_the_fence_and_with_the_write(runs):
    await runs.create(R, "{}")
    await runs.claim_and_own(R, PENDING, A, 11_000)
    present, absent = TransitionGuard("present"), TransitionGuard("absent")
    other = OwnerId("host-a", 101, "other")
    assert await runs.transition_owned(R, other, "running", guard=absent) == FenceLost()
    assert await runs.transition_owned("missing", A, "running", guard=absent) == NotFound()
    assert await runs.transition_owned(R, A, "cancelled", guard=present) == GuardFailed()
    assert await runs.transition_owned(R, A, "running", '{"a":1}', absent) == Transitioned()
    await runs.request_cancel(R, 500)
    assert await runs.transition_owned(R, A, "running", guard=absent) == GuardFailed()
    assert await runs.transition_owned(R, A, "cancelled", guard=present) == Transitioned()


async def test_an_acknowledgement_is_the_owners_and_the_first_one_stands(kit, runs):
    await runs.create(R, "{}")
    await runs.claim_and_own(R, PENDING, A, 11_000)
    assert await runs.acknowledge_cancel(R, A, 5) is False
    await runs.request_cancel(R, 4)
    assert await runs.acknowledge_cancel(R, OwnerId("host-a", 1, "x"), 5) is False
    assert await runs.acknowledge_cancel("missing", A, 5) is False
    assert await runs.acknowledge_cancel(R, A, 5) is True
    assert await runs.acknowledge_cancel(R, A, 9) is True
    query = "SELECT cancel_acknowledgement FROM belay_runs"
    kept = await runs._database.read(lambda tx: tx.exec_driver_sql(query).scalar_one())
    assert kept == '{"observed_at_ms":5,"owner":{"host_id":"host-a","pid":101,"nonce":"owner-a"}}'


async def test_52_a_run_that_has_a_lineages_name_is_none_of_its_rounds(runs):
    await runs.create("shared-name", "{}", CreateOptions(lineage_id="independent-lineage", round_ordinal=0))
    await runs.create("target", "{}", CreateOptions(lineage_id="shared-name", round_ordinal=0))
    assert [row.run_id for row in await runs.lineage("target")] == ["target"]
    assert [row.run_id for row in await runs.lineage("shared-name")] == ["shared-name"]
    assert await runs.request_cancel_lineage("target", 100) == CancelRequested(100)
    assert (await runs.get("shared-name")).cancel_requested_at_ms is None


async def test_a_first_round_from_before_lineages_belongs_to_the_lineage_named_after_it(runs):
    await runs.create("root", "{}")
    await runs.create("second", "{}", CreateOptions(lineage_id="root", round_ordinal=1))
    for run_id in ("root", "second"):
        assert [row.run_id for row in await runs.lineage(run_id)] == ["root", "second"]
        assert (await runs.latest_round(run_id)).run_id == "second"


async def test_parents_and_children_are_no_lineage_and_a_lone_run_is_its_own(runs):
    await runs.create("parent", "{}")
    await runs.create("child", "{}", CreateOptions(parent_run_id=RunId("parent")))
    assert [row.run_id for row in await runs.lineage("parent")] == ["parent"]
    assert (await runs.latest_round("child")).run_id == "child"
    assert await runs.lineage("missing") == ()
    with pytest.raises(RunStoreError, match="not_found_row"):
        await runs.latest_round("missing")


async def test_53_settled_rounds_are_untouched_and_the_latest_live_request_is_told(runs):
    await chain(runs, "root", "next")
    await finish(runs, "root")
    assert await runs.request_cancel_lineage("root", 100) == CancelRequested(100)
    assert await runs.request_cancel_lineage("next", 200) == AlreadyRequested(100)
    root = await runs.get("root")
    assert (root.cancel_requested_at_ms, root.status) == (None, "completed")
    assert await runs.request_cancel_lineage("missing", 1) == NotFound()
    await finish(runs, "next")
    assert await runs.request_cancel_lineage("root", 300) == Terminal(RunStatus.COMPLETED)


async def test_56_a_request_costs_the_same_whatever_the_length_of_the_lineage(kit, runs):
    seen: list[str] = []
    engine = runs._database._engines.write.sync_engine
    from sqlalchemy import event

    event.listen(engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    counts = []
    for length in (2, 40):
        ids = [f"round-{length}-{number}" for number in range(length)]
        await chain(runs, *ids, lineage=f"line-{length}")
        for run_id in ids[:-1]:
            await finish(runs, run_id)
        seen.clear()
        assert await runs.request_cancel_lineage(ids[0], 100) == CancelRequested(100)
        hit = [each for each in seen if "BEGIN" not in each]
        seen.clear()
        assert await runs.request_cancel_lineage(ids[0], 200) == AlreadyRequested(100)
        miss = [each for each in seen if "BEGIN" not in each]
        counts.append((len(hit), len(miss)))
        assert not any("state" in each.replace("status", "") for each in (*hit, *miss))
    # One to mark, one for the journal, one to see that nothing was raced past; a miss has no journal entry.
    assert counts == [(3, 2), (3, 2)]


async def test_49_a_write_that_keeps_missing_a_live_run_is_an_error_and_not_an_endless_loop(kit, runs, raw):
    await runs.create(R, "{}")
    if runs._database.dialect.name == "sqlite":
        await raw(
            kit.stores,
            "CREATE TRIGGER ignoring BEFORE UPDATE OF cancel_requested_at ON belay_runs "
            "BEGIN SELECT RAISE(IGNORE); END",
        )
    else:
        await raw(
            kit.stores,
            "CREATE FUNCTION ignoring() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER ignoring BEFORE UPDATE OF cancel_requested_at ON belay_runs "
            "FOR EACH ROW EXECUTE FUNCTION ignoring()",
        )
    with pytest.raises(RunStoreError) as found:
        await runs.request_cancel(R, 500)
    assert found.value.code == "persistence_failed"
    assert dict(found.value.cause or {}) == {"run_id": R, "stage": "write-invariant"}
    assert (await runs.get(R)).cancel_requested_at_ms is None


async def test_50_a_status_that_is_none_is_a_damaged_row(kit, runs, raw, loosen):
    await runs.create(R, "{}")
    await loosen(kit.stores, "belay_runs")
    await raw(kit.stores, "UPDATE belay_runs SET status = 'not-a-status', cancel_requested_at = 1")
    with pytest.raises(RunStoreError) as found:
        await runs.request_cancel(R, 2)
    assert (found.value.code, found.value.method) == ("decode_failed", "request_cancel")


async def test_55_a_lineage_is_asked_as_a_whole_or_not_at_all(kit, runs, raw):
    await chain(runs, "root", "next")
    if runs._database.dialect.name == "sqlite":
        await raw(
            kit.stores,
            "CREATE TRIGGER refusing BEFORE UPDATE OF cancel_requested_at ON belay_runs "
            "WHEN new.run_id = 'next' BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
        drop = "DROP TRIGGER refusing"
    else:
        await raw(
            kit.stores,
            "CREATE FUNCTION refusing() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RAISE EXCEPTION USING ERRCODE = ''23514''; END'",
            "CREATE TRIGGER refusing BEFORE UPDATE OF cancel_requested_at ON belay_runs "
            "FOR EACH ROW WHEN (new.run_id = 'next') EXECUTE FUNCTION refusing()",
        )
        drop = "DROP TRIGGER refusing ON belay_runs"
    with pytest.raises(RunStoreError, match="constraint"):
        await runs.request_cancel_lineage("root", 100)
    assert [row.cancel_requested_at_ms for row in await runs.lineage("root")] == [None, None]
    await raw(kit.stores, drop)
    assert await runs.request_cancel_lineage("root", 200) == CancelRequested(200)
    assert [row.cancel_requested_at_ms for row in await runs.lineage("root")] == [200, 200]


@pytest.mark.parametrize("bad", ["", "\ud800", 1, None])
async def test_58_a_bad_id_is_refused_everywhere(runs, bad):
    for call in (
        runs.lineage(bad),
        runs.latest_round(bad),
        runs.request_cancel_lineage(bad, 1),
        runs.acknowledge_cancel(bad, A, 1),
    ):
        with pytest.raises(RunStoreError, match="invalid_run"):
            await call


@pytest.mark.parametrize("bad", [-1, 0.5, float("nan"), float("inf"), 2**53, True])
async def test_58_a_bad_moment_is_refused_and_nothing_is_asked(runs, bad):
    await runs.create(R, "{}")
    with pytest.raises(RunStoreError, match="invalid_run"):
        await runs.request_cancel_lineage(R, bad)
    assert (await runs.get(R)).cancel_requested_at_ms is None


async def test_a_request_wakes_the_worker_of_a_workflows_run(kit, runs):
    await kit.own()
    assert await runs.request_cancel(R, 5) == CancelRequested(5)
    assert (await kit.run()).ready_at_ms == kit.now
