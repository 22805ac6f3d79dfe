"""A decision that had to wait for somebody else's change of its run counts upon what that has left, on PostgreSQL."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import text

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.stores.approvals import AlreadyDecided, Decided, TooLate

R = RunId("run-1")
WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))")
"""Who waits for this connection; what ``pg_stat_activity`` says stands still within a transaction."""


async def decided(kit, joined):
    await joined.approvals.decide(commands.Decide("ap-1", "rejected", await digest(kit), "bob"))


async def cancelled(_kit, joined):
    await joined.runs.cancel(commands.Cancel(R, "bob"))


async def digest(kit):
    [approval] = (await kit.history()).approvals
    return approval.subject_digest


async def nothing(_kit, _joined):
    pass


LAPSED = "UPDATE belay_approvals SET decision = 'lapsed', decided_at = 1"
OVER = (
    "UPDATE belay_runs SET status = 'cancelled', owner_host_id = NULL, owner_pid = NULL, owner_nonce = NULL,"
    " heartbeat_at = NULL, finished_at = 1"
)


async def waited(kit, stores, rival_does, statement, deciding):
    """The answer to a decision that began while the rival's change was not committed."""
    engine = stores.runs._database._engines.write.engine
    async with engine.connect() as rival, engine.connect() as own:
        await rival.begin()
        await own.begin()
        await rival.execute(text("SELECT 1 FROM belay_runs FOR NO KEY UPDATE"))
        await rival_does(kit, stores.within(rival))
        if statement:
            await rival.execute(text(statement))
        command = commands.Decide("ap-1", "approved", await digest(kit), "ada")
        used = stores if deciding == "straight" else stores.within(own)
        deciding_it = asyncio.ensure_future(used.approvals.decide(command))
        while not await rival.scalar(WAITING):
            pass
        await rival.commit()
        answer = await deciding_it
        await own.commit()
        return answer


@pytest.mark.parametrize("deciding", ["straight", "joined"])
@pytest.mark.parametrize(
    ("rival", "statement", "expected", "entries"),
    [
        (decided, None, AlreadyDecided, ["decided"]),
        (cancelled, None, Decided, ["cancel_requested", "decided"]),
        (nothing, LAPSED, TooLate, []),
        (nothing, OVER, TooLate, []),
        (nothing, None, Decided, ["decided"]),
    ],
    ids=["decided", "cancelled", "lapsed", "over", "read"],
)
async def test_a_decision_that_waited_sees_what_it_waited_for(
    belay_postgres, make_kit, rival, statement, expected, entries, deciding
):
    async with belay_postgres as stores:
        kit = make_kit(stores)
        await kit.ask(await kit.own())
        before = len(await kit.kinds())
        answer = await asyncio.wait_for(waited(kit, stores, rival, statement, deciding), 20)
        assert type(answer) is expected
        if isinstance(answer, AlreadyDecided):
            assert (answer.decided_by, answer.decision) == ("bob", "rejected")
        assert (await kit.kinds())[before:] == entries
        [approval] = (await kit.history()).approvals
        assert approval.decided_by == {AlreadyDecided: "bob", Decided: "ada", TooLate: None}[expected]


@pytest.mark.parametrize("gate", ["editor", 'an "odd" \\ name', "ünïcode \u2028 \t\n\x01\x7f", '{"gate":""}'])
async def test_a_decision_is_noted_the_same_directly_and_in_steps(belay_postgres, make_kit, gate):
    async with belay_postgres as stores:
        kit = make_kit(stores)
        noted = []
        for straight in (True, False):
            run_id = f"run-{straight}"
            lease = await kit.own(run_id)
            asked = replace(kit.asked(run_id, approval=f"ap-{run_id}"), gate=gate)
            await kit.stores.approvals.ask(commands.Ask(lease, kit.gate(), asked))
            command = commands.Decide(f"ap-{run_id}", "approved", asked.subject_digest, "ada")
            if straight:
                sent = await stores.runs._parts.hot.decide(command, kit.now)
                assert sent.value == run_id
            else:
                async with stores.runs._database._engines.write.engine.begin() as own:
                    assert isinstance(await stores.within(own).approvals.decide(command), Decided)
            [*_, entry] = await stores.journal.read(RunId(run_id))
            noted.append((entry.kind, entry.facts.replace(run_id, "run")))
        assert noted[0] == noted[1]
