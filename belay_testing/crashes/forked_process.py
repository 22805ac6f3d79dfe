"""Processes that begin where everything is imported and nothing is open, and may be killed anywhere.

A fork of a process with threads or connections would share them; so whoever forks keeps itself free of both.
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
"""Seconds after which a child that does not end is ended."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: killed by itself (SIGKILL), or with what its coroutine gave, which is JSON data."""

    killed: bool
    value: Any = None
    trouble: str | None = None
    """Why it ended in neither way."""


def die() -> None:
    """This process is gone, and nothing of it is told (SIGKILL)."""
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
    with os.fdopen(reading, "rb") as told:
        text = told.read()
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
        except BaseException as error:  # noqa: BLE001  (whatever it is, the parent tells of it)
            text = f"{type(error).__name__}: {error}"
        with os.fdopen(writing, "wb") as told:
            told.write(text.encode())
    finally:
        # Nothing of the parent's is to be run here: no handlers at exit, no buffers written twice.
        os._exit(code)
