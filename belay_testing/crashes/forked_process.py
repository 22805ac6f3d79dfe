"""Forked processes with everything imported and nothing open, which may be killed anywhere.

A fork of a process with threads or connections would share them; so the forking process has neither.
"""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from belay_core.errors import InvalidTransitionError

PATIENCE = 60
"""Seconds after which a child that does not end is killed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: killed by itself (SIGKILL), or with the JSON result of its coroutine."""

    killed: bool
    value: Any = None
    trouble: str | None = None
    """The error, where it ended in neither way."""


def die() -> None:
    """Kill this process without any cleanup (SIGKILL)."""
    os.kill(os.getpid(), signal.SIGKILL)


def forked(work: Callable[[], Coroutine[Any, Any, Any]]) -> Ended:
    """Run a coroutine in a process forked from this one, and wait for its end.

    Raises ``InvalidTransitionError`` where this process has other threads: a fork would inherit their locks.
    """
    if threading.active_count() > 1:
        raise InvalidTransitionError("a process with other threads must not be forked")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as reported:
        text = reported.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        killed = number == signal.SIGKILL
        return Ended(killed, trouble=None if killed else f"ended by signal {number}")
    if os.WEXITSTATUS(status):
        return Ended(killed=False, trouble=text.decode(errors="replace") or "ended with an error")
    return Ended(killed=False, value=json.loads(text))


def _child(work: Callable[[], Coroutine[Any, Any, Any]], writing: int) -> None:
    code = 1
    try:
        signal.alarm(PATIENCE)
        try:
            text, code = json.dumps(asyncio.run(work())), 0
        except BaseException as error:  # noqa: BLE001  (reported by the parent)
            text = f"{type(error).__name__}: {error}"
        with os.fdopen(writing, "wb") as reported:
            reported.write(text.encode())
    finally:
        # No exit handlers of the parent may run here, and no buffer may be written twice.
        os._exit(code)
