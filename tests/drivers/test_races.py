"""Several processes at once: one owner, one winner, no write of an owner that was replaced."""

import asyncio
import json
import sys
from textwrap import dedent

from belay_core.records.run import RunStatus
from belay_core.stores.run_contract import FenceLost

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
    from belay_core.records import commands
    from belay_core.ids import Uuid7Ids
    from belay_core.records.owner import OwnerId
    from belay_core.stores import open_stores

    async def main(url, pid):
        ids = Uuid7Ids()
        async with open_stores(url) as stores:
            print("ready", flush=True)
            for _ in sys.stdin:
                owner = OwnerId("host", pid, ids.nonce())
                got = await stores.runs.acquire(commands.Acquire(owner, ("refund",), 25))
                print(json.dumps([acquired.run.run_id for acquired in got]), flush=True)

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
        assert [await said(worker) for worker in workers] == ["ready", "ready"]
        shares: list[list[str]] = [[], []]
        while len(shares[0] + shares[1]) < RUNS:
            # Both at once, again and again: SQLite lets one of two go on and on that do not wait for each other.
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write(b"go\n")
            got = [json.loads(await said(worker)) for worker in workers]
            assert any(got), "nobody takes what is left"
            shares = [taken + more for taken, more in zip(shares, got, strict=True)]
        await asyncio.gather(*(worker.communicate(b"") for worker in workers))
        assert [worker.returncode for worker in workers] == [0, 0]
        assert sorted(shares[0] + shares[1]) == [f"run-{number:04}" for number in range(RUNS)]
        assert min(map(len, shares)) > 0


async def said(worker):
    return (await worker.stdout.readline()).decode().strip()
