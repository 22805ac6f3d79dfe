"""The payload of a notification: which runs changed, whether any is due, and the question whether peers listen."""

from dataclasses import dataclass
from typing import Final, Self

from belay_core.records.attempt import JsonValue
from belay_core.values import json
from belay_drivers.sql.statements.keys import key_of

MOST_RUNS: Final = 100
"""At most so many runs are named in a notification; beyond that it says that any may have changed."""
MOST_BYTES: Final = 4_000
"""Maximum bytes of a payload; the server accepts 7,999."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification of a peer."""

    run_ids: tuple[str, ...] | None
    """The runs that changed; None if any may have."""
    ready: bool
    """Whether any run is due."""
    asks: bool
    """Whether the peer asks for an answer of all who listen."""

    @classmethod
    def read(cls, payload: str) -> Self:
        """Read a payload; one that this release cannot read counts as a change of any run."""
        try:
            content = json.decode(payload)
        except json.JsonRefused:
            content = None
        facts = content if isinstance(content, dict) else {}
        runs = facts.get("runs")
        named = tuple(each for each in runs if isinstance(each, str)) if isinstance(runs, list) else None
        return cls(named, facts.get("ready") is not False, facts.get("asks") is True)


class PendingNotifications:
    """What has not been sent to peers yet."""

    def __init__(self) -> None:
        self.forget()

    def __bool__(self) -> bool:
        return bool(self._runs) or self._any or self._ready or self._greeting

    def forget(self) -> None:
        """Drop everything."""
        self._runs: dict[str, None] = {}
        self._any = False
        self._ready = False
        self._greeting = False

    def announce(self) -> None:
        """Announce this process: send a notification even if nothing changed."""
        self._greeting = True

    def add(self, run_id: str | None, *, ready: bool) -> None:
        """Add a change."""
        self._ready = self._ready or ready
        if run_id is None or self._any:
            return
        # Listeners know a run by its id, not by the key of a long one.
        if key_of(run_id) != run_id or len(self._runs) >= MOST_RUNS:
            self._any = True
        else:
            self._runs[run_id] = None

    def add_anything(self) -> None:
        """Any run may have changed, and any may be due."""
        self._any = self._ready = True

    def take_payload(self, *, asking: bool) -> str:
        """Remove everything, as one payload; with ``asking`` it asks peers for an answer."""
        # Without a question the member is left out, as in releases that do not have it.
        asks: dict[str, JsonValue] = {"asks": True} if asking else {}
        anything = json.encode({**asks, "ready": self._ready, "runs": None})
        payload = anything if self._any else json.encode({**asks, "ready": self._ready, "runs": [*self._runs]})
        self.forget()
        return payload if len(payload.encode()) <= MOST_BYTES else anything
