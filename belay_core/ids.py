"""Ids: the only module that makes new ones."""

import os
import threading
import time
from abc import abstractmethod
from typing import NewType, Protocol

RunId = NewType("RunId", str)
"""The id of a run: 1 to 1,024 UTF-16 code units of well-formed text without NUL."""
ApprovalId = NewType("ApprovalId", str)
"""The id of one approval."""


class IdSource(Protocol):
    """Makes ids that were never used before."""

    @abstractmethod
    def new(self) -> str:
        """A fresh id; ids made later sort later."""

    @abstractmethod
    def nonce(self) -> str:
        """A fresh token that is no secret, with at least 64 random bits."""


class Uuid7Ids(IdSource):
    """UUIDs of version 7 as text (RFC 9562), each greater than the one before, also within a millisecond.

    48 bits of time, then 74 bits that are random in a new millisecond and counted on by a random step within one
    (method 2 of section 6.2). A clock that is set back does not set them back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._stamp = -1
        self._tail = 0

    def new(self) -> str:
        """A UUIDv7 in its usual spelling."""
        with self._lock:
            stamp, tail = self._next()
        value = (stamp & (2**48 - 1)) << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | tail & (2**62 - 1)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def nonce(self) -> str:
        """Sixteen lower-case hexadecimal digits."""
        return os.urandom(8).hex()

    def _next(self) -> tuple[int, int]:
        stamp, pid = time.time_ns() // 1_000_000, os.getpid()
        if pid != self._pid:
            # A forked process would count on as its parent does.
            self._pid, self._stamp = pid, -1
        if stamp > self._stamp:
            # The highest bit is left free, so that there is room to count.
            self._stamp, self._tail = stamp, int.from_bytes(os.urandom(10), "big") >> 7
        else:
            self._tail += 1 + int.from_bytes(os.urandom(4), "big")
            if self._tail >= 2**74:
                self._stamp, self._tail = self._stamp + 1, int.from_bytes(os.urandom(10), "big") >> 7
        return self._stamp, self._tail
