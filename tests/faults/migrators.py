"""Many processes migrate one database at the same moment: one does it, all succeed."""

import fcntl
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from belay_core.errors import BelayError
from belay_core.stores import open_stores
from belay_core.stores.drivers import find_migrations
from tests.faults.nursery import Nursery

DEADLINE = 60.0
GATE = "gate"


@dataclass
class Found:
    """How many migrated, how many of them came to a good end, and how many applied anything."""

    migrators: int = 0
    ok: int = 0
    appliers: int = 0
    errors: list[str] = field(default_factory=list)


async def migrate_once(url: str, folder: str) -> None:
    """Migrate as soon as the gate is opened, and leave a note of the end."""
    name = Path(folder) / str(os.getpid())
    name.with_suffix(".ready").touch()
    with (Path(folder) / GATE).open() as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)
    try:
        found: dict[str, object] = {"applied": len(await find_migrations(url).migrate(url))}
        async with open_stores(url) as stores:
            await stores.runs.running_owners("nobody")
    except BelayError as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    name.with_suffix(".json").write_text(json.dumps(found))


def migrators(url: str, number: int) -> Found:
    """Have so many processes migrate the database at once."""
    found = Found(number)
    with TemporaryDirectory() as folder, Nursery() as nursery:
        here = Path(folder)
        with (here / GATE).open("w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            pids = [nursery.start("migrate", url, folder) for _ in range(number)]
            deadline = time.monotonic() + DEADLINE
            while len(list(here.glob("*.ready"))) < number and time.monotonic() < deadline:
                time.sleep(0.01)
        for pid in pids:
            code = nursery.wait(pid)
            if code:
                found.errors.append(f"exit code {code}")
        for note in here.glob("*.json"):
            said = json.loads(note.read_text())
            found.ok += "error" not in said
            found.appliers += said.get("applied", 0) > 0
            if "error" in said:
                found.errors.append(said["error"])
    return found
