"""What a notification says: which runs changed and whether any may be taken, and that somebody is here, or asks so."""

from dataclasses import dataclass
from typing import Final, Self

from belay_core.records.attempt import JsonValue
from belay_core.values import json
from belay_drivers.sql.statements.keys import key_of

MOST_RUNS: Final = 100
"""Runs one notification names at most; of more it says that any may have changed."""
MOST_BYTES: Final = 4_000
"""Bytes of one notification at most; the server takes 7,999."""


@dataclass(frozen=True, slots=True)
class Notification:
    """What somebody else has told."""

    run_ids: tuple[str, ...] | None
    """The runs that changed; None where any may have."""
    ready: bool
    """Whether any run may be taken."""
    asks: bool
    """Whether he wants to know who is here."""

    @classmethod
    def read(cls, payload: str) -> Self:
        """Read a notification; whatever this release cannot read may be about anything."""
        try:
            told = json.decode(payload)
        except json.JsonRefused:
            told = None
        facts = told if isinstance(told, dict) else {}
        runs = facts.get("runs")
        named = tuple(each for each in runs if isinstance(each, str)) if isinstance(runs, list) else None
        return cls(named, facts.get("ready") is not False, facts.get("asks") is True)


class PendingNotifications:
    """What others have not been told yet."""

    def __init__(self) -> None:
        self.forget()

    def __bool__(self) -> bool:
        return bool(self._runs) or self._any or self._ready or self._greeting

    def forget(self) -> None:
        """Nothing is to be told."""
        self._runs: dict[str, None] = {}
        self._any = False
        self._ready = False
        self._greeting = False

    def announce(self) -> None:
        """Somebody is here: whatever is told next says so, and it is told where there is nothing else."""
        self._greeting = True

    def add(self, run_id: str | None, *, ready: bool) -> None:
        """One poke more."""
        self._ready = self._ready or ready
        if run_id is None or self._any:
            return
        # Whoever waits knows a run by its id, not by the key of one that is too long.
        if key_of(run_id) != run_id or len(self._runs) >= MOST_RUNS:
            self._any = True
        else:
            self._runs[run_id] = None

    def add_anything(self) -> None:
        """Any run may have changed, and any may be taken."""
        self._any = self._ready = True

    def taken(self, *, asking: bool) -> str:
        """All of it as a payload, which asks who else is here or does not; nothing is left."""
        # Where nothing is asked the word is left out, as releases that do not know it leave it out.
        asks: dict[str, JsonValue] = {"asks": True} if asking else {}
        anything = json.encode({**asks, "ready": self._ready, "runs": None})
        payload = anything if self._any else json.encode({**asks, "ready": self._ready, "runs": [*self._runs]})
        self.forget()
        return payload if len(payload.encode()) <= MOST_BYTES else anything
