"""The workers of ``--kill``: processes that the demo starts, replaces, and ends."""

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from belay_core.clock import Clock
from belay_core.demo.places import Places, environment
from belay_core.errors import BelayError

_GIVEN_TO_LEAVE: Final = 10.0
_LOOK: Final = 0.005
_MOST_LOST: Final = 3


class CrewLost(BelayError):
    """The workers end although nobody kills them."""


class Crew:
    """Worker processes; those that end are replaced, and all have ended when the block is left."""

    def __init__(self, places: Places, clock: Clock, *, size: int, concurrency: int) -> None:
        self._places = places
        self._clock = clock
        self._size = size
        self._arguments = [sys.executable, "-m", "belay_core.demo.crew", str(concurrency)]
        self._members: dict[int, subprocess.Popen[bytes]] = {}
        self._lost = 0

    @property
    def pids(self) -> frozenset[int]:
        """The processes that are there."""
        return frozenset(self._members)

    async def __aenter__(self) -> Self:
        for _ in range(self._size):
            self._hire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        members = list(self._members.values())
        self._members.clear()
        for member in members:
            member.terminate()
        deadline = self._clock.elapsed() + _GIVEN_TO_LEAVE * 1000
        try:
            while any(member.poll() is None for member in members) and self._clock.elapsed() < deadline:
                await self._clock.sleep(_LOOK)
        finally:
            _end(members)

    async def kill(self, pid: int) -> None:
        """SIGKILL one of them; once this returns it is gone, and another one is on its way."""
        member = self._members.pop(pid)
        member.kill()
        while member.poll() is None:
            await self._clock.sleep(_LOOK)
        _end([member])
        self._hire()

    def mend(self) -> None:
        """Replace those that ended by themselves. Raises ``CrewLost`` where that goes on."""
        for pid, member in list(self._members.items()):
            if member.poll() is None:
                continue
            del self._members[pid]
            _end([member])
            self._lost += 1
            if self._lost >= _MOST_LOST:
                code, log = member.returncode, self._places.workers_log
                raise CrewLost(f"the workers end by themselves, the last with exit code {code}; see {log}")
            self._hire()

    def _hire(self) -> None:
        with self._places.workers_log.open("ab") as log:
            member = subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment(self._places.url),
                # Ctrl-C reaches a terminal's whole group of processes, and these are to leave when they are told.
                start_new_session=True,
            )
        self._members[member.pid] = member


def _end(members: Iterable["subprocess.Popen[bytes]"]) -> None:
    for member in members:
        if member.poll() is None:
            member.kill()
            member.wait()
        if member.stdin is not None:
            with suppress(OSError):
                member.stdin.close()
