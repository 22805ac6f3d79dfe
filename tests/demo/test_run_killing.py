"""Workers of the demo are killed while they work, on both kinds of database, over documents known and unknown."""

import asyncio
import re
import shlex
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from belay_core import Client
from belay_core.client.explanation import shown_state
from belay_core.demo.crewing import Crew
from belay_core.demo.filing import filed_name
from belay_core.demo.inbox import look_into, samples, tasks_for
from belay_core.demo.places import Places, opened
from belay_core.demo.reading import read_invoice
from belay_core.demo.report import report_on
from belay_core.demo.telling import ways_out
from belay_core.demo.watching import step_under_way
from belay_core.demo.workflow import accounts_payable
from belay_testing.postgres_server import PostgresServer
from tests.demo.demonstrating import (
    SECONDS,
    Demo,
    cli,
    command,
    demo,
    digests,
    environment,
    foreign,
    is_alive,
    ledger_of,
    runs,
    small,
    until,
    write,
)

pytestmark = pytest.mark.timeout(SECONDS + 30)


def killed(*arguments: str) -> Demo:
    ended = demo("--kill", "--json", *arguments)
    figures = ended.figures
    assert set(figures) == {"runs", "completed", "stopped", "posted", "posted_twice", "kills", "resumed", "seconds"}
    assert ended.code == 0, ended
    assert figures["kills"] >= 3
    assert figures["posted_twice"] == 0
    assert figures["completed"] + figures["stopped"] == figures["runs"]
    assert figures["resumed"] >= 1
    return ended


def check_ledger(ended: Demo, inbox: Path) -> None:
    """The ledger by itself: each key and each document once, and what was completed is filed, byte for byte."""
    postings = ended.ledger
    assert len(postings) == ended.figures["posted"] >= ended.figures["completed"]
    assert [key for key, count in Counter(posting[0] for posting in postings).items() if count > 1] == []
    assert [key for key, count in Counter(posting[4] for posting in postings).items() if count > 1] == []
    posted = {posting[4] for posting in postings}
    assert posted <= digests(inbox)
    filed = digests(ended.folder / "filed")
    assert filed <= posted
    assert len(filed) == ended.figures["completed"]


def slowest(ended: Demo) -> float:
    found = re.search(r"the slowest ([0-9.]+) s after the kill", ended.err)
    assert found is not None, ended.err
    return float(found[1])


def check_samples(ended: Demo) -> None:
    assert ended.figures["runs"] == 18
    assert ended.figures["completed"] >= 5
    assert slowest(ended) < 15
    check_ledger(ended, samples())
    lines = [line.strip() for line in ended.err.splitlines()]
    assert any(line.startswith("12-broken.xml: step read failed: UnreadableInvoice: not_xml: ") for line in lines)
    assert any(
        line.startswith("13-entity-bomb.xml: step read failed: UnreadableInvoice: hostile_xml") for line in lines
    )


def test_the_samples_survive_kills_on_sqlite():
    check_samples(killed("--approve", "all"))


def test_the_samples_survive_kills_on_a_postgresql_that_was_empty(
    belay_postgres_server: PostgresServer, belay_postgres_names
):
    url = belay_postgres_server.create_database(next(belay_postgres_names))
    check_samples(killed("--approve", "all", "--database", url))


def test_other_invoices_survive_kills_on_postgresql(tmp_path: Path, belay_postgres):
    inbox = foreign(tmp_path / "in")
    ended = killed("--approve", "all", "--inbox", str(inbox), "--database", belay_postgres.url)
    assert ended.figures["runs"] == 35
    assert ended.figures["completed"] >= 15
    check_ledger(ended, inbox)
    for name, code in (
        ("bomb.xml", "hostile_xml"),
        ("empty.xml", "empty"),
        ("gone.xml", "no_file"),
        ("notes.txt", "not_xml"),
        ("scan.pdf", "other_format"),
    ):
        assert f"{name}: step read failed: UnreadableInvoice: {code}: " in ended.err
    assert ", and folders, which are left out: 1\n" in ended.err


def test_three_other_documents_are_enough_for_three_kills_on_sqlite(tmp_path: Path):
    inbox = write(tmp_path / "in", [small(1), small(2), small(3)])
    ended = killed("--approve", "none", "--inbox", str(inbox))
    check_ledger(ended, inbox)


@pytest.mark.parametrize("ledger_has_it", [False, True])
async def test_what_was_killed_while_it_posted_waits_for_a_word_and_then_goes_on(tmp_path: Path, ledger_has_it: bool):
    inbox = look_into(write(tmp_path / "in", [small(1)]))
    places = Places(tmp_path, f"sqlite:///{tmp_path}/belay.db")
    (task,) = tasks_for(inbox, places.ledger, places.filed, batch="b", moment_ms=1000)
    async with opened(places.url) as stores, asyncio.timeout(SECONDS):
        client = Client(stores)
        run = await client.start(accounts_payable, task)
        async with Crew(places, stores.clock, size=1, concurrency=1) as crew:
            while step_under_way(await client.history(run)) != "post" or bool(posted(tmp_path)) is not ledger_has_it:
                await asyncio.sleep(0.02)
            (pid,) = crew.pids
            await crew.kill(pid)
            while shown_state(await client.get(run)) != "needs_review":
                await asyncio.sleep(0.05)
            report = report_on([await client.history(run)], {run.run_id: task}, [], places.ledger, 0.0)
            assert (report.stopped, report.is_good, len(posted(tmp_path))) == (1, True, int(ledger_has_it))
            why, way_out = ways_out(report.ended[0], places)
            assert ("has it, as 1:" if ledger_has_it else "does not have it:") in why
            arguments = shlex.split(way_out)[1:]
            assert ("--happened" in arguments, "--retry" in arguments) == (ledger_has_it, not ledger_has_it)
            assert await asyncio.to_thread(cli, *arguments) == 0
            assert await run.result() == f"posted as 1 to 3100, filed as {filed_name(read_invoice(inbox.documents[0]))}"
    assert len(posted(tmp_path)) == 1


def test_no_worker_outlives_a_demo_that_is_killed_itself(tmp_path: Path):
    inbox = write(tmp_path / "in", [small(number) for number in range(30)])
    url = f"sqlite:///{tmp_path}/belay.db"
    arguments = ("demo", "--kill", "--inbox", str(inbox), "--database", url, "--moment", "5000")
    with subprocess.Popen(
        command(*arguments), env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().removeprefix("everything is in ").strip())
        until(lambda: (folder / "workers.log").exists() and owners(url))
        process.send_signal(signal.SIGKILL)
    workers = owners(url)
    assert workers
    until(lambda: not any(is_alive(pid) for pid in workers))


def posted(folder: Path) -> list[tuple[str, str, int, str, str]]:
    return ledger_of(folder) if (folder / "ledger.db").exists() else []


def owners(url: str) -> set[int]:
    return {run.owner.pid for run in runs(url).values() if run.owner}
