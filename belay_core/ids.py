"""Ids: the only module that makes new ones."""

import os
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
    """UUIDs of version 7 as text (RFC 9562): 48 bits of time, then random bits."""

    def new(self) -> str:
        """A UUIDv7 in its usual spelling."""
        stamp = time.time_ns() // 1_000_000
        tail = int.from_bytes(os.urandom(10), "big")
        value = (stamp & (2**48 - 1)) << 80 | 0x7 << 76 | (tail >> 62 & 0xFFF) << 64 | 0b10 << 62 | tail & (2**62 - 1)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def nonce(self) -> str:
        """Sixteen lower-case hexadecimal digits."""
        return os.urandom(8).hex()
