"""Scopes: they count the calls of a run, so that a call has the same key on every replay (kernel 14)."""

import asyncio
import random
from typing import Any

from belay_core.clock import Millis
from belay_core.errors import DefinitionError
from belay_core.jitter import seeded


class Scope:
    """One task's part of a workflow: the body itself, an item of a map, a branch."""

    def __init__(self, run_id: str, path: str, began_at: Millis, parent: "Scope | None" = None) -> None:
        self.path = path
        self.parent = parent
        self.now: Millis = began_at
        """The time at which the scope's last result was recorded, or at which the scope began."""
        self.task: asyncio.Task[Any] | None = None
        """The task the scope belongs to: the first one that calls."""
        self._ended = False
        """Whether its task has ended and is forgotten; no other task owns the scope then."""
        self.watched = False
        """Whether the end of the task is reported."""
        self.unopened = 0
        """Number of calls that were made and are not awaited yet."""
        self.open_calls = 0
        self.inline = 0
        """Number of open calls and joins that the scope's own task waits for directly."""
        self._run_id = run_id
        self._counts: dict[str, int] = {}
        self._random: random.Random | None = None

    def key(self, name: str) -> str:
        """The key of the next call of this name: path, name, and its count within the scope."""
        self.require_own_task()
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return f"{self.path}{name}#{count}"

    def called(self, name: str) -> int:
        """Number of calls of this name in this scope so far."""
        return self._counts.get(name, 0)

    @property
    def random(self) -> random.Random:
        """A generator seeded by run and scope: a replay draws the same numbers."""
        self.require_own_task()
        if self._random is None:
            self._random = seeded(f"{self._run_id}/{self.path}")
        return self._random

    def require_own_task(self) -> None:
        """Raise ``DefinitionError`` if the current task is not the scope's own."""
        try:
            current = asyncio.current_task()
        except RuntimeError:
            current = None
        if current is self.task is not None:
            return
        if current is None:
            raise DefinitionError("a context is used by the workflow's own code, not by threads or from outside of it")
        if self.task is not None or self._ended:
            raise DefinitionError(
                "this context belongs to another task: give each task its own with ctx.map, ctx.gather or ctx.branch"
            )
        self.task = current

    def forget_task(self) -> None:
        """Drop the reference to the task, if it has ended: its exception may hold all frames of the task."""
        if self.task is not None and self.task.done():
            self.task, self._ended = None, True

    @property
    def over(self) -> bool:
        """Whether the scope's task is done, and its end will not be reported."""
        ended = self._ended or (self.task is not None and self.task.done())
        return ended and not self.watched
