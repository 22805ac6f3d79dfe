"""What fails says what kind of failure it was, and repeats nothing of what it was given."""

import logging
import traceback
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from belay_core.errors import BelayError, DatabaseError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.attempt import Attempt, FinishAttempt
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import CreateOptions, RunSnapshot, RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunWait
from belay_testing.conformance.kit import send

CANARY = "tweet-tweet-4711"
TEXT = f'"{CANARY}"'


def step(state=StepState.SUCCEEDED, **more):
    given = {"input_digest": CANARY, "outcome": TEXT, "error": TEXT, "meta": TEXT, **more}
    return StepRecord(
        step_key=f"{CANARY}#1",
        attempt=1,
        step=CANARY,
        kind=StepKind.STEP,
        state=state,
        idempotent=True,
        started_at_ms=1,
        **given,
    )


def approval(run_id, **more):
    given = {"approval_id": CANARY, "gate": CANARY, "subject": TEXT, "subject_digest": CANARY, **more}
    return ApprovalRecord(run_id=run_id, step_key=f"{CANARY}#1", asked_at_ms=1, **given)


def calls(kit, lease):
    """One call of every operation, with the canary in every text it takes."""
    stores, runs, attempts = kit.stores, kit.stores.runs, kit.stores.attempts
    run_id, owner = RunId(CANARY), OwnerId(CANARY, 1, CANARY)
    stranger = Lease(run_id, owner, 1)
    return {
        "start": lambda: stores.runs.start(commands.Start(run_id, CANARY, CANARY, TEXT, CANARY, 0, None, CANARY)),
        "acquire": lambda: stores.runs.acquire(commands.Acquire(owner, (CANARY,), 1, (owner,))),
        "wake": lambda: stores.runs.wake(commands.Wake()),
        "renew": lambda: stores.runs.renew(commands.Renew((stranger, lease))),
        "record": lambda: stores.attempts.record(commands.Record(lease, (step(),))),
        "record several": lambda: stores.attempts.record(commands.Record(lease, (step(), step(input_digest="other")))),
        "ask": lambda: stores.approvals.ask(commands.Ask(lease, step(StepState.WAITING), approval(lease.run_id))),
        "sleep": lambda: stores.attempts.sleep(commands.Sleep(lease, step(StepState.WAITING))),
        "withdraw": lambda: stores.approvals.withdraw(commands.Withdraw(lease, step())),
        "lapse": lambda: stores.approvals.lapse(commands.Lapse(lease, CANARY, step())),
        "park": lambda: stores.runs.park(commands.Park(lease, RunWait(CANARY, CANARY), TEXT, notes=(TEXT,))),
        "settle": lambda: stores.runs.settle(commands.Settle(lease, RunStatus.FAILED, TEXT, TEXT, notes=(TEXT,))),
        "decide": lambda: stores.approvals.decide(
            commands.Decide(CANARY, "approved", CANARY, CANARY, CANARY, TEXT, CANARY)
        ),
        "cancel": lambda: stores.runs.cancel(commands.Cancel(lease.run_id, CANARY)),
        "resolve": lambda: stores.runs.resolve(commands.Resolve(lease.run_id, commands.Happened(TEXT), CANARY, CANARY)),
        "retry": lambda: stores.runs.retry(commands.RetryRun(lease.run_id, CANARY, CANARY)),
        "history": lambda: stores.attempts.history(commands.History((run_id,))),
        "find": lambda: stores.runs.find(run_id),
        "list": lambda: stores.runs.list(commands.ListRuns(CANARY, waiting_reason=CANARY, before=run_id)),
        "list_approvals": lambda: stores.approvals.list(commands.ListApprovals(run_id)),
        "find approval": lambda: stores.approvals.find(CANARY),
        "journal": lambda: stores.journal.read(run_id),
        "running_owners": lambda: stores.runs.running_owners(CANARY),
        "create": lambda: runs.create(run_id, TEXT, CreateOptions(run_id, CANARY, 1)),
        "get": lambda: runs.get(run_id),
        "claim_and_own": lambda: runs.claim_and_own(run_id, RunSnapshot(RunStatus.PENDING), owner, 0),
        "heartbeat": lambda: runs.heartbeat(run_id, owner, 0),
        "transition_owned": lambda: runs.transition_owned(run_id, owner, RunStatus.FAILED, TEXT),
        "put": lambda: attempts.put(Attempt(run_id, CANARY, 1, CANARY, 1, CANARY), owner),
        "get attempt": lambda: attempts.get(Attempt(run_id, CANARY, 1, CANARY, 1, CANARY)),
        "finish": lambda: attempts.finish(FinishAttempt(run_id, CANARY, 1, CANARY, 1), owner),
    }


NOTHING = SimpleNamespace(stores=SimpleNamespace(runs=None, attempts=None))
NAMES = sorted(calls(NOTHING, Lease(RunId("r"), OwnerId("h", 1, "n"), 1)))


def reported(error):
    """Everything a handler of this error could print, without looking into frames."""
    seen = [*traceback.format_exception(error)]
    link = error
    while link is not None:
        seen += [str(link), repr(link), *(repr(argument) for argument in link.args), repr(vars(link))]
        cause = getattr(link, "cause", None)
        if cause is not None:
            seen += [repr(dict(cause)), *(repr(value) for value in cause.values())]
        link = link.__cause__ or link.__context__
    return "".join(seen)


async def failing(call, caplog) -> Any:
    with caplog.at_level(logging.DEBUG), pytest.raises(BelayError) as failure:
        await call()
    text = reported(failure.value) + caplog.text
    assert CANARY not in text
    for word in ("SELECT", "INSERT", "UPDATE", "belay_broken", "sqlalche.me", "sqlite3.", "DETAIL"):
        assert word not in text, word
    return failure.value


@pytest.mark.parametrize("name", NAMES)
async def test_a_broken_schema_is_reported_without_a_word_of_what_was_sent(kit, raw, caplog, name):
    lease = await kit.own()
    await raw(
        kit.stores,
        "ALTER TABLE belay_runs RENAME TO belay_broken",
        "ALTER TABLE belay_attempts RENAME TO belay_broken_attempts",
        "ALTER TABLE belay_approvals RENAME TO belay_broken_approvals",
        "ALTER TABLE belay_journal RENAME TO belay_broken_journal",
    )
    error = await failing(calls(kit, lease)[name], caplog)
    assert error.code == "persistence_failed"
    assert isinstance(error.cause["cause"], DatabaseError)


async def test_a_broken_rule_of_the_schema_is_a_constraint_and_keeps_the_value_to_itself(kit, caplog):
    lease = await kit.own("run-1")
    other = await kit.own("run-2")
    await kit.stores.approvals.ask(commands.Ask(lease, step(StepState.WAITING), approval(lease.run_id)))
    again = commands.Ask(other, step(StepState.WAITING), approval(other.run_id))
    error = await failing(lambda: kit.stores.approvals.ask(again), caplog)
    assert (error.code, error.cause["category"]) == ("constraint", "constraint")
    assert await kit.attempts("run-2") == {}
    assert type(await kit.record(other, kit.step())).__name__ == "Recorded"


@pytest.mark.parametrize("text", [f"{CANARY}\ud800", f"{CANARY}\0"])
async def test_a_text_a_database_refuses_is_not_repeated(kit, caplog, text):
    lease = await kit.own()
    await kit.ask(lease)
    for name in ("by", "reason", "edited", "edited_digest"):
        error = await failing(partial(kit.decide, **{name: text}), caplog)
        assert error.parameter == name
    refused = [
        commands.Cancel(lease.run_id, text),
        commands.Resolve(lease.run_id, commands.Happened(text), "ada"),
        commands.Resolve(lease.run_id, commands.Retry(), text),
        commands.Resolve(lease.run_id, commands.Retry(), "ada", text),
    ]
    for command in refused:
        await failing(partial(send, kit.stores, command), caplog)
    assert (await kit.stores.approvals.find("ap-1")).decision is None


async def test_a_text_only_the_engine_writes_is_not_repeated_either(kit, caplog):
    lease = await kit.own()
    error = await failing(partial(kit.record, lease, step(error=f"{CANARY}\ud800")), caplog)
    assert error.code == "persistence_failed"
    assert await kit.attempts() == {}


async def test_a_number_too_large_is_an_error_without_it(kit, caplog):
    lease = await kit.own()
    error = await failing(partial(kit.record, lease, step(recorded=2**63 + 987_654)), caplog)
    assert str(2**63 + 987_654) not in reported(error)
    assert await kit.attempts() == {}


async def test_a_cut_connection_is_reported_without_its_address_or_password(
    belay_postgres, make_kit, caplog, monkeypatch
):
    async with belay_postgres as stores:
        kit = make_kit(stores)
        lease = await kit.own()
        for way in (stores.runs._database._engines.write, stores.runs._parts.group_commit._channel):
            await way.close()

        async def refuse(*_arguments, **_more):
            raise ConnectionRefusedError(f"host {CANARY} refused password {CANARY}")

        monkeypatch.setattr("asyncpg.connect", refuse)
        error = await failing(calls(kit, lease)["record"], caplog)
        assert error.cause["category"] == "io"
