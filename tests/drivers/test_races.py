"""Several processes at once: one owner, one winner, no write of an owner that was replaced."""

import asyncio
import json
import sys
from textwrap import dedent

import pytest

from belay_core import commands
from belay_core.ids import RunId
from belay_core.outcomes.engine import Decided, Recorded
from belay_core.outcomes.runs import FenceLost
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState

TAKEOVERS = {"sqlite": 150, "postgresql": 400}
RUNS = 1_000


async def test_once_a_takeover_committed_no_write_of_the_earlier_owner_is_accepted(shared_store, make_kit):
    async with shared_store as one, shared_store as other:
        old, new = make_kit(one), make_kit(other)
        takeovers = TAKEOVERS[one.runs._database.dialect.name]
        accepted = refused = 0
        run_id = "run-0"
        lease = await old.own(run_id)
        for number in range(takeovers):
            stop = asyncio.Event()
            writing = asyncio.ensure_future(write_on(old, lease, str(number), stop))
            await asyncio.sleep(0)
            # A row that is being written to just then is skipped, not waited for.
            while not (got := await new.acquire(dead=(lease.owner,))):
                pass
            [taken] = got
            seen = len((await new.history(run_id)).attempts)
            stop.set()
            answers = await writing
            assert len((await new.history(run_id)).attempts) == seen, "an earlier owner wrote after the takeover"
            lost = [place for place, answer in enumerate(answers) if isinstance(answer, FenceLost)]
            assert lost == list(range(lost[0], len(answers)))
            accepted, refused = accepted + lost[0], refused + len(lost)
            lease = taken.lease
            old, new = new, old
            if number % 20 == 19:
                # Another run now and then, so that its history stays short to read.
                await old.settle(lease, RunStatus.COMPLETED)
                run_id = f"run-{number}"
                lease = await old.own(run_id)
        assert refused >= takeovers
        assert accepted > 0


async def write_on(kit, lease, name, stop):
    """The earlier owner, who does not know yet, writes as fast as it can, and once more when all is over."""
    answers: list[object] = []
    while not (answers and isinstance(answers[-1], FenceLost) and stop.is_set()):
        key = f"{name}/{len(answers)}#1"
        steps = (kit.step(key),) if len(answers) % 3 else (kit.step(key), kit.step(f"x{key}"))
        answers.append(await kit.record(lease, *steps))
    return answers


WORKER = dedent(
    """
    import asyncio, json, sys
    from belay_core import commands
    from belay_core.ids import Uuid7Ids
    from belay_core.records.owner import OwnerId
    from belay_core.stores import open_stores

    async def main(url, pid):
        taken = []
        ids = Uuid7Ids()
        async with open_stores(url) as stores:
            print("ready", flush=True)
            sys.stdin.readline()
            while True:
                owner = OwnerId("host", pid, ids.nonce())
                got = await stores.engine.acquire(commands.Acquire(owner, ("refund",), 25))
                if not got:
                    break
                taken += [acquired.run.run_id for acquired in got]
        print(json.dumps(taken))

    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    """
)


async def test_two_processes_never_get_the_same_run(shared_store, make_kit):
    async with shared_store as stores:
        kit = make_kit(stores)
        kit.clock.set(1_000.0)
        insert = (
            "INSERT INTO belay_runs (run_id, status, workflow, version, ready_at, created_at, last_entry) "
            "VALUES ('{0}', 'pending', 'refund', '1', 0, 0, 0)"
        )
        values = "INSERT INTO belay_run_values (run_id, state, input) VALUES ('{0}', '1', '1')"

        def fill(tx):
            for number in range(RUNS):
                tx.exec_driver_sql(insert.format(f"run-{number:04}"))
                tx.exec_driver_sql(values.format(f"run-{number:04}"))

        await stores.runs._database.write(fill)
        command = [sys.executable, "-c", WORKER, shared_store.url]
        pipe = asyncio.subprocess.PIPE
        workers = [await asyncio.create_subprocess_exec(*command, str(pid), stdin=pipe, stdout=pipe) for pid in (1, 2)]
        for worker in workers:
            assert worker.stdout is not None
            assert await worker.stdout.readline() == b"ready\n"
        replies = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
        shares = [json.loads(reply) for reply, _ in replies]
        assert all(worker.returncode == 0 for worker in workers)
        assert sorted(shares[0] + shares[1]) == [f"run-{number:04}" for number in range(RUNS)]
        assert min(map(len, shares)) > 0


async def test_rivals_in_one_process_never_get_the_same_run(kit):
    for number in range(60):
        await kit.start(f"run-{number}")
    rivals = await asyncio.gather(*(kit.acquire(limit=7) for _ in range(15)))
    taken = [acquired.run.run_id for got in rivals for acquired in got]
    assert sorted(taken) == sorted(f"run-{number}" for number in range(60))


async def test_fifty_approvers_in_two_processes_agree_on_one_decision(shared_store, make_kit):
    async with shared_store as one, shared_store as other:
        kits = [make_kit(one), make_kit(other)]
        lease = await kits[0].own()
        await kits[0].ask(lease)
        answers = await asyncio.gather(
            *(kits[n % 2].decide(decision=("approved", "rejected")[n % 3 % 2], by=f"p{n}") for n in range(50))
        )
        [won] = [n for n, answer in enumerate(answers) if isinstance(answer, Decided)]
        approval = await kits[1].engine.find_approval("ap-1")
        assert approval.decided_by == f"p{won}"


@pytest.mark.parametrize("order", [0, 1])
async def test_a_decision_from_another_process_is_seen_before_the_run_is_let_go(shared_store, make_kit, order):
    async with shared_store as one, shared_store as other:
        owner, approver = make_kit(one), make_kit(other)
        for number in range(20):
            lease = await owner.own(f"run-{number}")
            await owner.ask(lease, approval=f"ap-{number}")
            calls = [owner.park(lease), approver.decide(f"ap-{number}")]
            answers = await asyncio.gather(*(calls[::-1] if order else calls))
            parked = answers[1] if order else answers[0]
            run = await owner.run(f"run-{number}")
            if run.status is RunStatus.SUSPENDED:
                assert type(parked).__name__ == "Parked"
                assert run.ready_at_ms is not None
                [taken] = await owner.acquire()
                lease = taken.lease
            else:
                assert (await owner.renew(lease)).news_ms is not None
            await owner.settle(lease, RunStatus.COMPLETED, seen_ms=(await owner.renew(lease)).news_ms)


async def test_starts_with_one_key_from_two_processes_start_once(shared_store, make_kit):
    async with shared_store as one, shared_store as other:
        kits = [make_kit(one), make_kit(other)]
        answers = await asyncio.gather(*(kits[n % 2].start(f"run-{n}", idempotency_key="k") for n in range(30)))
        assert len({answer.run_id for answer in answers}) == 1
        assert sum(type(answer).__name__ == "Started" for answer in answers) == 1


async def test_owners_cancel_requests_operators_and_renewals_do_not_block_each_other(shared_store, make_kit):
    async with shared_store as one, shared_store as other:
        kits = [make_kit(one), make_kit(other)]
        leases = []
        for number in range(12):
            leases.append(await kits[0].own(f"run-{number}"))
            await kits[0].record(leases[-1], kits[0].step("pay#1", StepState.ORPHANED, recorded=None))
        work = []
        for number, lease in enumerate(leases):
            run_id = RunId(f"run-{number}")
            work += [
                kits[0].record(lease, kits[0].step()),
                kits[1].engine.cancel(commands.Cancel(run_id)),
                kits[1].engine.resolve(commands.Resolve(run_id, commands.Retry(), "ada", "pay#1")),
                kits[0].engine.renew(commands.Renew(tuple(leases))),
                kits[1].engine.renew(commands.Renew(tuple(reversed(leases)))),
            ]
        answers = await asyncio.gather(*work)
        assert sum(isinstance(answer, Recorded) for answer in answers) == 12


async def test_a_dead_owner_is_taken_over_by_exactly_one_of_many(kit):
    lease = await kit.own()
    dead = (lease.owner, OwnerId("host-a", 1, "other"))
    rivals = await asyncio.gather(*(kit.acquire(dead=dead) for _ in range(10)))
    assert sum(len(got) for got in rivals) == 1
