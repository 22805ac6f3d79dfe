"""Connections that go away: before the commit was sent, after it was, and while nobody knows."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from sqlalchemy import select

from belay_core.errors import StoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.attempt import Attempt, FinishAttempt
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.step_record import StepKind, StepState
from belay_core.stores.attempts import Recorded
from belay_core.stores.run_contract import FenceLost
from belay_drivers.postgres import open_postgres
from belay_drivers.sql.schema import tables

BIND = b"\0__asyncpg_"
"""The unnamed portal and the name of a statement: when one is run, not when it is prepared."""


def cause_of(failure: pytest.ExceptionInfo[StoreError]) -> Any:
    assert failure.value.cause is not None
    return failure.value.cause["cause"]


def database_of(stores: Any) -> Any:
    return stores.runs._database


class Proxy:
    """Passes bytes on to a server, until the message it is armed for comes by.

    ``lose`` is ``"request"`` (the message never arrives), ``"reply"`` (it arrives and is answered, the answer does
    not come back) or ``"both"`` (it arrives, and nobody waits for the answer).
    """

    def __init__(self, url):
        self.server = urlsplit(url)
        self.lose = None
        self.marks: tuple[bytes, ...] = ()
        self.cuts = 0
        self._writers = set()
        self._tasks = set()

    @asynccontextmanager
    async def running(self):
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        try:
            yield urlunsplit(self.server._replace(netloc=f"{self.server.username}@127.0.0.1:{port}"))
        finally:
            listener.close()
            self._cut()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def arm(self, lose, *marks):
        self.lose, self.marks, self.cuts = lose, marks, 0

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection(self.server.hostname, self.server.port)
        pair = {writer, up_writer}
        self._writers |= pair
        state = {"drop": False}
        await asyncio.wait(
            [
                asyncio.ensure_future(self._up(reader, up_writer, pair, state)),
                asyncio.ensure_future(self._down(up_reader, writer, pair, state)),
            ],
        )
        self._abort(pair)

    async def _up(self, reader, writer, pair, state):
        while data := await self._read(reader):
            lose = self.lose
            if lose is not None and any(mark in data for mark in self.marks):
                self.lose = None
                self.cuts += 1
                if lose == "request":
                    return self._abort(pair)
                state["drop"] = True
                writer.write(data)
                if lose == "both":
                    await writer.drain()
                    return self._abort(pair)
                continue
            writer.write(data)
        return self._abort(pair)

    async def _down(self, reader, writer, pair, state):
        while data := await self._read(reader):
            if state["drop"]:
                return self._abort(pair)
            writer.write(data)
        return self._abort(pair)

    async def _read(self, reader):
        try:
            return await reader.read(65_536)
        except OSError:
            return b""

    def _abort(self, pair):
        for writer in pair:
            writer.transport.abort()
        self._writers -= pair

    def _cut(self):
        self._abort(set(self._writers))


COMMIT = (b"COMMIT;",)


@pytest.fixture
async def proxied(belay_postgres, belay_clock, belay_ids):
    proxy = Proxy(belay_postgres.url)
    async with proxy.running() as url, open_postgres(url, clock=belay_clock, ids=belay_ids) as stores:
        # Nothing but the operation passes by when the proxy is armed.
        stores.notifier._relay = None
        yield proxy, stores


async def contents(stores):
    """Everything stored, but for what differs from database to database, and for how often was written."""

    def read(tx):
        return {
            table.name: sorted(map(str, tx.execute(select(*_uncounted(table))).all()))
            for table in tables.metadata.sorted_tables
            if table.name not in {"belay_store", "belay_migrations"}
        }

    return await database_of(stores).read(read)


def _uncounted(table):
    return [column for column in table.c if column.name != "write_seq"]


async def writes(stores):
    """How often each run was written by its owner."""
    return await database_of(stores).read(lambda tx: tx.execute(select(tables.runs.c.write_seq)).scalars().all())


OWNER = OwnerId("h", 1, "n")
BARE = RunId("bare")


async def bare(kit):
    await kit.stores.runs.create(BARE, "{}")
    await kit.stores.runs.claim_and_own(BARE, RunSnapshot(RunStatus.PENDING), OWNER, kit.now)


async def gate(kit, lapse=None):
    lease = await kit.own()
    await kit.ask(lease, lapse_at_ms=lapse)
    return lease


async def do_start(kit):
    return partial(kit.start, idempotency_key="k")


async def do_acquire(kit):
    await kit.start()
    await kit.start("run-2", priority=5)
    return partial(kit.acquire, owner=kit.owner("fresh"))


async def do_record(kit):
    lease = await kit.own()
    return partial(kit.record, lease, kit.step())


async def do_record_again(kit):
    lease = await kit.own()
    await kit.record(lease, kit.step())
    return partial(kit.record, lease, kit.step())


async def do_record_conflict(kit):
    lease = await kit.own()
    await kit.record(lease, kit.step())
    return partial(kit.record, lease, kit.step(outcome="2"))


async def do_record_several(kit):
    lease = await kit.own()
    return partial(kit.record, lease, kit.step("a#1"), kit.step("b#1"))


async def do_renew(kit):
    lease = await kit.own()
    kit.clock.advance(5)
    return partial(kit.renew, lease)


async def do_ask(kit):
    return partial(kit.ask, await kit.own())


async def do_sleep(kit):
    lease = await kit.own()
    return partial(
        kit.stores.attempts.sleep, commands.Sleep(lease, kit.step("s#1", StepState.WAITING, kind=StepKind.SLEEP))
    )


async def do_withdraw(kit):
    lease = await gate(kit)
    return partial(kit.stores.approvals.withdraw, commands.Withdraw(lease, kit.gate(state=StepState.CANCELLED)))


async def do_lapse(kit):
    lease = await gate(kit, kit.now)
    return partial(kit.stores.approvals.lapse, commands.Lapse(lease, "ap-1", kit.gate(state=StepState.SUCCEEDED)))


async def do_park(kit):
    return partial(kit.park, await kit.own())


async def do_park_with_notes(kit):
    return partial(kit.park, await kit.own(), notes=("1",))


async def do_settle(kit):
    lease = await kit.own()
    kit.clock.advance(5)
    return partial(kit.settle, lease, RunStatus.COMPLETED, result="1")


async def do_settle_with_a_question(kit):
    return partial(kit.settle, await gate(kit), RunStatus.COMPLETED, result="1")


async def do_wake(kit):
    await kit.park(await kit.own(), "timer", wake_at_ms=kit.now)
    return partial(kit.stores.runs.wake, commands.Wake())


async def do_decide(kit):
    await gate(kit)
    return kit.decide


async def do_cancel(kit):
    await kit.start()
    return partial(kit.stores.runs.cancel, commands.Cancel(RunId("run-1"), "ada"))


async def do_resolve(kit):
    lease = await kit.own()
    await kit.record(lease, kit.step("pay#1", StepState.ORPHANED, recorded=None))
    return partial(kit.stores.runs.resolve, commands.Resolve(RunId("run-1"), commands.Happened("1"), "ada", "pay#1"))


async def do_retry(kit):
    lease = await kit.own()
    failed = kit.step("pay#1", StepState.FAILED, error='{"type":"E","message":""}')
    await kit.record(lease, failed)
    await kit.settle(lease, RunStatus.FAILED, error='{"type":"E","message":"","steps":["pay#1"]}')
    return partial(kit.stores.runs.retry, commands.RetryRun(RunId("run-1"), "ada", "mended"))


async def do_create(kit):
    return partial(kit.stores.runs.create, BARE, '{"a":1}')


async def do_claim(kit):
    await kit.stores.runs.create(BARE, "{}")
    return partial(kit.stores.runs.claim_and_own, BARE, RunSnapshot(RunStatus.PENDING), OWNER, kit.now)


async def do_heartbeat(kit):
    await bare(kit)
    return partial(kit.stores.runs.heartbeat, BARE, OWNER, kit.now + 5)


async def do_transition(kit):
    await bare(kit)
    return partial(kit.stores.runs.transition_owned, BARE, OWNER, RunStatus.COMPLETED, "1")


async def do_put(kit):
    await bare(kit)
    return partial(kit.stores.attempts.put, Attempt(BARE, "d", 1, "running", 5, {}), OWNER)


async def do_finish(kit):
    await bare(kit)
    await kit.stores.attempts.put(Attempt(BARE, "d", 1, "running", 5, {}), OWNER)
    return partial(kit.stores.attempts.finish, FinishAttempt(BARE, "d", 1, "completed", 9, outcome=1), OWNER)


LONE = {"acquire", "ask", "park", "record", "record_again", "record_conflict", "record_several", "renew", "settle"}
LONE |= {"settle_with_a_question", "sleep", "start"}
# Of two statements the one that writes, by a value in it.
MARKS = dict.fromkeys(LONE, (BIND,)) | {"decide": (b"approved",)}
CALLS = {name.removeprefix("do_"): call for name, call in list(globals().items()) if name.startswith("do_")}


@pytest.mark.parametrize("lose", ["request", "reply", "both"])
@pytest.mark.parametrize("call", sorted(CALLS))
async def test_a_lost_connection_changes_neither_the_answer_nor_what_is_stored(
    call, lose, proxied, belay_postgres_server, belay_postgres_template, belay_postgres_names, belay_clock, make_kit
):
    began = belay_clock.now()
    proxy, stores = proxied
    work = await CALLS[call](make_kit(stores))
    proxy.arm(lose, *MARKS.get(call, COMMIT))
    answer = await work()
    assert proxy.cuts == 1
    stored, written = await contents(stores), await writes(stores)

    belay_clock.set(began)
    name = next(belay_postgres_names)
    url = belay_postgres_server.create_database(name, template=belay_postgres_template)
    async with open_postgres(url, clock=belay_clock, ids=type(stores.ids)()) as calm:
        expected = await (await CALLS[call](make_kit(calm)))()
        assert answer == expected
        assert stored == await contents(calm)
        # A request that may still arrive after its write was refused is shut out, by one write more.
        shut_out = (call, lose) == ("record_conflict", "request")
        assert sum(written) == sum(await writes(calm)) + shut_out
    belay_postgres_server.drop_database(name)


@pytest.mark.parametrize("call", ["start", "record", "park", "decide", "acquire"])
async def test_killed_connections_in_the_pool_are_not_noticed(call, belay_postgres, make_kit):
    async with belay_postgres as stores, open_postgres(belay_postgres.url) as other:
        work = await CALLS[call](make_kit(stores))
        await database_of(other).read(
            lambda tx: tx.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).all()
        )
        answer = await work()
        assert "Lost" not in repr(answer)
        assert answer


async def test_a_write_whose_backend_still_waits_is_counted_once(proxied, belay_postgres, make_kit):
    proxy, stores = proxied
    kit = make_kit(stores)
    lease = await kit.own()
    await kit.record(lease, kit.step("before#1"))
    async with open_postgres(belay_postgres.url) as other:
        engine = database_of(other)._engines.write.engine
        async with engine.connect() as blocker:
            await blocker.exec_driver_sql("SELECT 1 FROM belay_runs FOR UPDATE")
            proxy.arm("both", BIND)
            task = asyncio.ensure_future(kit.record(lease, kit.step()))
            await asyncio.sleep(0.4)
            assert (proxy.cuts, task.done()) == (1, False)
            await blocker.rollback()
        assert await task == Recorded(None, None)
        assert isinstance(await kit.record(lease, kit.step("after#1")), Recorded)
        assert sorted(await kit.attempts()) == ["after#1", "before#1", "fetch#1"]
        seq = await database_of(other).read(
            lambda tx: tx.exec_driver_sql("SELECT write_seq FROM belay_runs").scalar_one()
        )
        assert seq == 3


async def test_a_takeover_while_the_reply_is_lost_is_reported_as_lost(proxied, belay_postgres, make_kit):
    proxy, stores = proxied
    kit = make_kit(stores)
    lease = await kit.own()
    async with open_postgres(belay_postgres.url, clock=kit.clock) as other:
        engine = database_of(other)._engines.write.engine
        async with engine.connect() as blocker:
            await blocker.exec_driver_sql("SELECT 1 FROM belay_runs FOR UPDATE")
            proxy.arm("both", BIND)
            task = asyncio.ensure_future(kit.record(lease, kit.step()))
            await asyncio.sleep(0.3)
            await blocker.exec_driver_sql(
                "UPDATE belay_runs SET owner_nonce = 'new', last_nonce = 'new', epoch = epoch + 1"
            )
            await blocker.commit()
        assert await task == FenceLost()
        assert await kit.attempts() == {}


async def test_a_server_that_stays_away_is_an_error_and_the_next_call_works_when_it_is_back(proxied, make_kit):
    proxy, stores = proxied
    kit = make_kit(stores)
    lease = await kit.own()
    true_port, proxy.server = proxy.server, proxy.server._replace(netloc="belay@127.0.0.1:1")
    proxy._cut()
    with pytest.raises(StoreError) as failure:
        await kit.record(lease, kit.step())
    assert cause_of(failure).code == "io"
    proxy.server = true_port
    assert isinstance(await kit.record(lease, kit.step()), Recorded)


@pytest.mark.parametrize("lose", ["request", "reply", "both"])
async def test_a_flush_whose_reply_is_lost_gives_each_writer_the_right_outcome(lose, proxied, make_kit):
    proxy, stores = proxied
    kit = make_kit(stores)
    await asyncio.gather(*(kit.start(f"run-{number}") for number in range(5)))
    leases = [acquired.lease for acquired in await kit.acquire(limit=5)]
    await asyncio.gather(*(kit.record(lease, kit.step("before#1")) for lease in leases))
    proxy.arm(lose, BIND)
    answers = await asyncio.gather(*(kit.record(lease, kit.step()) for lease in leases))
    assert proxy.cuts == 1
    assert answers == [Recorded(None, None)] * 5
    assert await asyncio.gather(*(kit.record(lease, kit.step("after#1")) for lease in leases)) == answers
    for lease in leases:
        assert sorted(await kit.attempts(lease.run_id)) == ["after#1", "before#1", "fetch#1"]
