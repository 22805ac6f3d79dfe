"""Wake-ups between processes on PostgreSQL: what one opening commits, those who wait at another look for at once.

Everybody here looks by himself so seldom that no test would end in time without being told.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from belay_core import Client, Context, Worker, step, workflow
from belay_core.stores import Notifier
from belay_drivers.postgres import open_postgres
from belay_drivers.postgres.connections import address_of, dedicated_engine
from belay_drivers.postgres.notifications import MOST_RUNS
from belay_drivers.postgres.relay import CLOSING_TIMEOUT, SPACING, PostgresRelay

POLL = 30.0
SOON = 10.0
LONG = 3_600.0
QUESTION = {"asks": True, "ready": False, "runs": []}
ANSWER = {"ready": False, "runs": []}
ANY = {"ready": True, "runs": None}
CHANNEL = "SELECT 'belay_' || to_hex(hashtextextended('belay:' || current_schema(), 0))"
RELAYS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE ANY($1) AND pid <> $2"
OF_RELAYS = ["LISTEN%", "%pg_notify%"]


@step(idempotent=True)
async def greeted(name: str) -> str:
    return f"hello {name}"


@workflow("listening-greets")
async def greets(ctx: Context, name: str) -> str:
    return await ctx.step(greeted, name)


@workflow("listening-asks")
async def asks(ctx: Context, name: str) -> str:
    await ctx.gate("may", subject=name)
    return await ctx.step(greeted, name)


@pytest.fixture(autouse=True)
def seldom(monkeypatch):
    monkeypatch.setattr("belay_core.client.handle.POLL", POLL)
    monkeypatch.setattr("belay_core.client.handle.LONGEST_POLL", POLL)


@pytest.fixture
def answered():
    """Seconds after which one who hears of nobody takes himself to be alone: here nobody does."""
    return LONG


@pytest.fixture(autouse=True)
def patience(monkeypatch, answered):
    monkeypatch.setattr("belay_drivers.postgres.peer_presence.ANSWER_TIMEOUT", answered)


at_once = pytest.mark.parametrize("answered", [pytest.param(0.0, id="alone at once")])
sooner_or_later = pytest.mark.parametrize(
    "answered", [pytest.param(0.0, id="alone at once"), pytest.param(LONG, id="never alone")]
)


@asynccontextmanager
async def two(handle, **given):
    """Two openings, as two processes have them, on real time."""
    async with open_postgres(handle.url, **given) as one, open_postgres(handle.url, **given) as other:
        async with asyncio.timeout(SOON):
            yield one, other


@asynccontextmanager
async def hearing(stores, run_id=None):
    """An event of somebody who waits there; it is the first one, and the connection listens."""
    with stores.notifier.listening(run_id) as heard:
        await heard.wait()
        assert stores.notifier.hears_peers
        heard.clear()
        yield heard


async def kept(stores, run_id):
    """Poke where nobody else is, so that it is told to nobody."""
    stores.notifier.notify(run_id, ready=True)
    while not stores.notifier._relay._peers.alone:
        await asyncio.sleep(0)


class DriverOptions:
    """A connection beside the stores, and what it was notified of."""

    def __init__(self, connection):
        self.connection = connection
        self.said = []
        self.reported = []
        """What of it is about runs."""
        self.hears = asyncio.Event()

    async def listen(self):
        await self.connection.add_listener(await self.connection.fetchval(CHANNEL), self._heard)

    def _heard(self, _connection, _pid, _channel, payload):
        self.said.append(reported := json.loads(payload))
        if reported not in (QUESTION, ANSWER):
            self.reported.append(reported)
            self.hears.set()

    async def says(self, number):
        """What was said, once it is so much."""
        while len(self.said) < number:
            await self.connection.fetchval("SELECT 1")
        return self.said

    async def relays(self):
        return [row["pid"] for row in await self.connection.fetch(RELAYS, OF_RELAYS, self.connection.get_server_pid())]

    async def notify(self, payload):
        await self.connection.execute("SELECT pg_notify($1, $2)", await self.connection.fetchval(CHANNEL), payload)


@asynccontextmanager
async def beside(handle):
    connection = await asyncpg.connect(handle.url)
    try:
        yield DriverOptions(connection)
    finally:
        await connection.close()


@sooner_or_later
async def test_a_worker_elsewhere_takes_a_run_and_its_client_hears_of_the_end(belay_postgres):
    stores = two(belay_postgres)
    async with stores as (here, there), hearing(there), hearing(here), Worker(there, [greets], poll=POLL):
        run = await Client(here).start(greets, "ada")
        assert await run.result() == "hello ada"


@sooner_or_later
async def test_a_decision_elsewhere_wakes_a_run_that_is_parked(belay_postgres):
    stores = two(belay_postgres)
    async with stores as (here, there), hearing(there), hearing(here), Worker(there, [asks], poll=POLL):
        client = Client(here, approver="tester")
        run = await client.start(asks, "ada")
        with here.notifier.listening(run.run_id) as heard:
            while (await client.get(run)).status != "suspended":
                await heard.wait()
                heard.clear()
        await client.approve(run, "may")
        assert await run.result() == "hello ada"


async def test_what_was_not_sent_to_anyone_is_read_once_the_connection_listens(belay_postgres):
    async with two(belay_postgres) as (_, there):
        with there.notifier.listening() as ready, there.notifier.listening("run") as heard:
            await ready.wait()
            await heard.wait()


async def test_behind_a_pooler_no_notification_is_sent_and_no_connection_is_opened(belay_postgres):
    async with two(belay_postgres, pooler="transaction") as (here, there), beside(belay_postgres) as other:
        await other.listen()
        with there.notifier.listening() as heard:
            run = await Client(here).start(greets, "ada")
            here.notifier.notify(run.run_id, ready=True)
            # What is told arrives in the order in which it was.
            await other.notify('{"ready":true,"runs":[]}')
            await other.hears.wait()
            assert other.reported == [{"ready": True, "runs": []}]
            assert (heard.is_set(), there.notifier.hears_peers) == (False, False)
            assert await other.relays() == []


async def test_a_connection_that_was_lost_is_opened_again_and_everybody_looks(belay_postgres):
    async with two(belay_postgres) as (here, there), beside(belay_postgres) as other, hearing(there) as heard:
        [lost] = await other.relays()
        assert await other.connection.fetchval("SELECT pg_terminate_backend($1, 5000)", lost)
        await heard.wait()
        [found] = await other.relays()
        assert found != lost
        heard.clear()
        here.notifier.notify("run", ready=True)
        await heard.wait()


async def test_many_calls_are_one_notification_and_no_two_follow_at_once(belay_postgres):
    async with open_postgres(belay_postgres.url) as stores, beside(belay_postgres) as other, asyncio.timeout(SOON):
        await other.listen()
        loop = asyncio.get_running_loop()
        async with hearing(stores):
            for number in range(MOST_RUNS):
                stores.notifier.notify(f"run-{number}", ready=number == 1)
            await other.hears.wait()
            assert other.reported == [{"ready": True, "runs": [f"run-{number}" for number in range(MOST_RUNS)]}]
            began = loop.time()
            pokes = 0
            while len(other.reported) < 6:
                stores.notifier.notify("again")
                pokes += 1
                await asyncio.sleep(0)
            assert loop.time() - began >= 4 * SPACING
            assert pokes > 5 * len(other.reported)


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([f"run-{number}" for number in range(MOST_RUNS + 1)], id="too many"),
        pytest.param(["é" * 600], id="too long for a key"),
        pytest.param([f"{number}" * 900 for number in range(9)], id="too long together"),
    ],
)
async def test_of_runs_that_do_not_fit_is_said_that_any_may_have_changed(belay_postgres, runs):
    async with two(belay_postgres) as (here, there), beside(belay_postgres) as other:
        await other.listen()
        async with hearing(there, runs[-1]) as heard, hearing(here):
            for run_id in runs:
                here.notifier.notify(run_id)
            await heard.wait()
            await other.hears.wait()
            assert other.reported == [{"ready": False, "runs": None}]


async def test_what_cannot_be_read_is_about_anything_and_breaks_nothing(belay_postgres):
    payloads = ("", "{", "[]", '"run"', '{"runs":7}', '{"later":1}', "9" * 5000, '{"runs":null}')
    async with two(belay_postgres) as (_, there), beside(belay_postgres) as other, hearing(there) as ready:
        with there.notifier.listening("run") as heard:
            for payload in payloads:
                await other.notify(payload)
                await heard.wait()
                await ready.wait()
                heard.clear()
                ready.clear()
            await other.notify('{"runs":[7,null,"run"],"ready":false}')
            await heard.wait()
            assert not ready.is_set()


async def test_this_process_does_not_hear_itself(belay_postgres):
    async with open_postgres(belay_postgres.url) as stores, beside(belay_postgres) as other, asyncio.timeout(SOON):
        await other.listen()
        async with hearing(stores) as heard:
            stores.notifier.notify("run", ready=True)
            heard.clear()
            await other.hears.wait()
            other.hears.clear()
            stores.notifier.notify("later")
            await other.hears.wait()
            assert not heard.is_set()


async def test_what_is_notified_last_is_sent_before_the_stores_are_closed(belay_postgres):
    async with beside(belay_postgres) as other, asyncio.timeout(SOON):
        await other.listen()
        async with open_postgres(belay_postgres.url) as stores:
            stores.notifier.notify("run", ready=True)
        # And nobody is asked, as no answer would be waited for.
        assert await other.says(1) == [{"ready": True, "runs": ["run"]}]
        assert await other.relays() == []


@at_once
async def test_who_is_alone_asks_once_and_tells_nothing(belay_postgres):
    async with beside(belay_postgres) as other, asyncio.timeout(SOON):
        await other.listen()
        async with open_postgres(belay_postgres.url) as stores, hearing(stores):
            await other.says(1)
            async with Worker(stores, [greets], poll=POLL) as worker:
                for name in ("ada", "bob"):
                    assert await (await worker.client.start(greets, name)).result() == f"hello {name}"
        # Whatever was still to be told has been by now.
        assert await other.relays() == []
        assert other.said == [QUESTION]


@at_once
async def test_who_is_alone_answers_a_newcomer_with_what_it_kept_and_then_each_tells(belay_postgres, monkeypatch):
    async with beside(belay_postgres) as other, open_postgres(belay_postgres.url) as here, asyncio.timeout(SOON):
        await other.listen()
        async with hearing(here) as heard:
            assert await other.says(1) == [QUESTION]
            await kept(here, "before")
            monkeypatch.setattr("belay_drivers.postgres.peer_presence.ANSWER_TIMEOUT", LONG)
            async with open_postgres(belay_postgres.url) as there, hearing(there) as heard_there:
                assert await other.says(3) == [QUESTION, QUESTION, ANY]
                here.notifier.notify("run", ready=True)
                assert (await other.says(4))[3] == {"ready": True, "runs": ["run"]}
                await heard_there.wait()
                heard.clear()
                there.notifier.notify("later", ready=True)
                assert (await other.says(5))[4] == {"ready": True, "runs": ["later"]}
                await heard.wait()


@at_once
async def test_who_was_alone_makes_up_for_what_it_kept_when_it_was_lost_to_others(belay_postgres):
    async with beside(belay_postgres) as other, open_postgres(belay_postgres.url) as stores, asyncio.timeout(SOON):
        await other.listen()
        async with hearing(stores) as looks:
            assert await other.says(1) == [QUESTION]
            [lost] = await other.relays()
            await kept(stores, "before")
            looks.clear()
            assert await other.connection.fetchval("SELECT pg_terminate_backend($1, 5000)", lost)
            await looks.wait()
            assert await other.says(2) == [QUESTION, {**ANY, "asks": True}]


@at_once
async def test_who_hears_of_nobody_any_more_asks_again_and_is_alone(belay_postgres, monkeypatch):
    monkeypatch.setattr("belay_drivers.postgres.peer_presence.PEER_TIMEOUT", 0.0)
    async with beside(belay_postgres) as other, asyncio.timeout(SOON):
        await other.listen()
        async with open_postgres(belay_postgres.url) as stores, hearing(stores) as heard:
            assert await other.says(1) == [QUESTION]
            await kept(stores, "before")
            heard.clear()
            # Somebody who says this, and is killed.
            await other.notify('{"ready":true,"runs":["his"]}')
            await heard.wait()
            await other.says(3)
            for number in range(3):
                stores.notifier.notify(f"run-{number}", ready=True)
        assert await other.relays() == []
        assert other.said == [QUESTION, {"ready": True, "runs": ["his"]}, {**ANY, "asks": True}]


async def test_a_question_is_answered_and_wakes_nobody(belay_postgres):
    async with beside(belay_postgres) as other, open_postgres(belay_postgres.url) as stores, asyncio.timeout(SOON):
        await other.listen()
        async with hearing(stores) as ready:
            assert await other.says(1) == [QUESTION]
            with stores.notifier.listening("run") as heard:
                await other.notify(json.dumps(QUESTION))
                assert await other.says(3) == [QUESTION, QUESTION, ANSWER]
                assert (heard.is_set(), ready.is_set()) == (False, False)


async def test_a_worker_that_leaves_leaves_no_connection_and_no_task(belay_postgres):
    before = asyncio.all_tasks()
    async with beside(belay_postgres) as other, asyncio.timeout(SOON):
        async with open_postgres(belay_postgres.url) as stores, hearing(stores):
            async with Worker(stores, [greets], poll=POLL) as worker:
                run = await worker.client.start(greets, "ada")
                await run.result()
            assert len(await other.relays()) == 1
        assert await other.relays() == []
    assert asyncio.all_tasks() == before


async def test_stores_that_nobody_waits_at_open_no_connection_for_it(belay_postgres):
    async with open_postgres(belay_postgres.url) as stores, beside(belay_postgres) as other:
        assert await Client(stores).list() == ()
        assert await other.relays() == []


async def test_where_no_connection_can_be_had_nobody_hears_of_it_and_closing_waits_for_nothing(belay_postgres, caplog):
    parts = urlsplit(belay_postgres.url)
    nowhere = address_of(urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:1", query="")))
    notifier = Notifier()
    relay = PostgresRelay(notifier, lambda: dedicated_engine(nowhere))
    notifier.attach_relay(relay)
    with notifier.listening("run") as heard:
        async with asyncio.timeout(CLOSING_TIMEOUT):
            notifier.notify("other", ready=True)
            while not relay._failing:
                await asyncio.sleep(0)
            assert not heard.is_set()
            notifier.notify("run")
            assert heard.is_set()
            await relay.close()
    notifier.notify("run", ready=True)
    assert caplog.records == []
