"""A log of effects outside the database: it shows which effects were lost or doubled."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from belay_core import current_step


@dataclass(frozen=True, slots=True)
class Effect:
    """One execution of a step's body: ``key`` is the step's key within its run."""

    run_id: str
    key: str
    attempt: int
    pid: int


class EffectLog:
    """A file to which every effect is appended, and flushed to the disk, before the step goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self) -> None:
        """Append the effect of the current step."""
        now = current_step()
        line = json.dumps([now.run_id, now.key.removeprefix(f"{now.run_id}/"), now.attempt, os.getpid()])
        # Opened for each line: a descriptor kept open would be shared with forks.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{line}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)

    def effects(self, run_id: str) -> list[Effect]:
        """The effects of one run, in order."""
        if not self._path.exists():
            return []
        rows = [Effect(*json.loads(line)) for line in self._path.read_text().splitlines()]
        return [each for each in rows if each.run_id == run_id]
