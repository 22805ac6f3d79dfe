"""The answers of AttemptStore (specs, run store 7)."""

from dataclasses import dataclass
from typing import TypeAlias

from belay_core.outcomes.runs import FenceLost, NotFound, Updated


@dataclass(frozen=True, slots=True)
class Inserted:
    """The attempt is stored."""


@dataclass(frozen=True, slots=True)
class Upserted:
    """An attempt in progress was replaced."""


@dataclass(frozen=True, slots=True)
class ExistingSame:
    """The very same attempt stood there already."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another attempt stands under this key; it stays as it was."""


@dataclass(frozen=True, slots=True)
class RunNotFound:
    """There is no such run."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The attempt has its end."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The attempt is no longer in progress; its first end stands."""


@dataclass(frozen=True, slots=True)
class Patched:
    """The values that were given are stored; the others stay."""


PutResult: TypeAlias = Inserted | Upserted | ExistingSame | Conflict | FenceLost | RunNotFound
"""The answers of ``AttemptStore.put``."""
FinishResult: TypeAlias = Finished | FenceLost | NotFound | StateChanged
"""The answers of ``AttemptStore.finish``."""
HeartbeatResult: TypeAlias = Updated | FenceLost | NotFound | StateChanged
"""The answers of ``AttemptStore.heartbeat``."""
PatchResult: TypeAlias = Patched | FenceLost | NotFound
"""The answers of ``AttemptStore.patch``."""
