"""Real processes, killed for real: nothing recorded is done again, nothing is lost, and it takes seconds."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from belay_core import Client, open_stores
from belay_core.client.explanation import shown_state
from belay_testing.handles import StoresHandle

APP = Path(__file__).parent / "killing_app.py"
DEADLINE = 100

pytestmark = pytest.mark.timeout(DEADLINE + 20)


class Crew:
    """Workers in processes of their own."""

    def __init__(self, url: str, ledger: Path) -> None:
        self.ledger = ledger
        self.arguments = [sys.executable, str(APP), url, str(ledger)]
        self.members: list[subprocess.Popen[bytes]] = []

    def hire(self) -> None:
        self.members.append(subprocess.Popen(self.arguments))

    def kill(self, pid: int) -> bool:
        for member in self.members:
            if member.pid == pid:
                self.members.remove(member)
                member.kill()
                member.wait()
                return True
        return False

    def dismiss(self) -> list[int]:
        for member in self.members:
            # One that was hired last may not listen to signals yet.
            while member.poll() is None and not self.ledger.with_name(f"{member.pid}.ready").exists():
                time.sleep(0.01)
            member.send_signal(signal.SIGTERM)
        return [member.wait(20) for member in self.members]


@pytest.fixture(params=["file", "postgres"])
def database(request: pytest.FixtureRequest) -> StoresHandle:
    return request.getfixturevalue({"file": "belay_sqlite_file", "postgres": "belay_postgres"}[request.param])


def effects(ledger: Path) -> Counter[tuple[str, str]]:
    with sqlite3.connect(ledger) as connection:
        return Counter(connection.execute("SELECT run_id, step FROM effects").fetchall())


async def over(client: Client) -> bool:
    runs = await client.list(limit=200)
    return all(shown_state(run) in {"completed", "needs_review"} for run in runs)


async def kill_now_and_then(client: Client, crew: Crew, kills: int, more: Callable[[], Awaitable[None]]) -> None:
    """Kill the owner of a running run, so many times, and hire another; there is ``more`` to do while that goes on."""
    done = 0
    while done < kills:
        for run in await client.list(status="running", limit=200):
            if run.owner is not None and crew.kill(run.owner.pid):
                crew.hire()
                done += 1
                break
        if await over(client):
            await more()
        await asyncio.sleep(0.5)


async def test_workers_killed_at_random_lose_nothing_and_double_nothing(database, tmp_path):
    ledger = tmp_path / "ledger.db"
    async with database:
        pass  # the schema is there from here on
    with sqlite3.connect(ledger) as connection:
        connection.execute("CREATE TABLE effects (run_id TEXT, step TEXT)")
    crew = Crew(database.url, ledger)
    async with open_stores(database.url) as stores, asyncio.timeout(DEADLINE):
        client = Client(stores)
        sys.path.insert(0, str(APP.parent))
        from killing_app import paying

        runs = []

        async def more() -> None:
            runs.extend([await client.start(paying, number) for number in range(40)])

        await more()
        for _ in range(2):
            crew.hire()
        try:
            await kill_now_and_then(client, crew, 4, more)
            while not await over(client):
                await asyncio.sleep(0.05)
        finally:
            codes = crew.dismiss()
        states = Counter([shown_state(await client.get(run)) for run in runs])
    seen = effects(ledger)
    assert codes == [0, 0]
    assert states["completed"] + states["needs_review"] == len(runs)
    assert [key for key, count in seen.items() if key[1] == "pay" and count > 1] == []
    assert states["completed"] <= sum(1 for key in seen if key[1] == "pay")


async def test_a_killed_owner_on_the_same_host_is_replaced_within_three_seconds(database, tmp_path):
    ledger = tmp_path / "ledger.db"
    async with database:
        pass
    with sqlite3.connect(ledger) as connection:
        connection.execute("CREATE TABLE effects (run_id TEXT, step TEXT)")
    crew = Crew(database.url, ledger)
    async with open_stores(database.url) as stores, asyncio.timeout(DEADLINE):
        client = Client(stores)
        sys.path.insert(0, str(APP.parent))
        from killing_app import hanging

        run = await client.start(hanging)
        crew.hire()
        try:
            while (found := await client.get(run)).owner is None:
                await asyncio.sleep(0.01)
            crew.hire()
            async with asyncio.timeout(20):
                while not (tmp_path / f"{crew.members[1].pid}.ready").exists():
                    await asyncio.sleep(0.01)
            killed_at = time.monotonic()
            assert crew.kill(found.owner.pid)
            while (await client.get(run)).epoch == 1:
                await asyncio.sleep(0.01)
            took = time.monotonic() - killed_at
        finally:
            with suppress(subprocess.TimeoutExpired):
                crew.members[0].kill()
                crew.members[0].wait(10)
    assert took < 3
