"""Random values that a store may get wrong, the same for the same seed.

A store has to return a value equal in value and type, or to refuse it.
"""

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from belay_core.jitter import seeded
from belay_core.limits import MAX_SAFE_INTEGER

TEXTS: Final = (
    "",
    "0",
    "null",
    "NULL",
    "\\",
    "\\u0000",
    "\0",
    "a\0b",
    "'",
    '"',
    "'; DROP TABLE belay_runs; --",
    "%s %(x)s :b_run $1 ? {} {0}",
    "\t\r\n\x0b\x0c\x1f\x7f\x85\u2028\u2029",
    "\ufeff\ufffe\uffff\ufffd",
    "e\u0301 \u00e9 \u1e9b\u0323",
    "\u202e\u200b\u200d",
    "\U0001f9d7\U0010ffff",
    "漢" * 300,
    " leading and trailing ",
    "\u0130\u0131\u017f\u212a",
)
"""Texts that look like syntax and are data."""
NUMBERS: Final = (
    *(0, 1, -1, MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER, 2**31, -(2**31) - 1, 2**32, 10**15),
    *(0.0, -0.0, 1.0, 0.1, 1e-7, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e16, 1e22, 1e100, 0.1 + 0.2),
)
NO_DATA: Final[tuple[Callable[[], Any], ...]] = (
    lambda: math.nan,
    lambda: math.inf,
    lambda: -math.inf,
    lambda: MAX_SAFE_INTEGER + 1,
    lambda: -(10**30),
    lambda: "\ud800",
    lambda: "a\udfffb",
    lambda: {"\udc00": 1},
    lambda: {1: 1},
    lambda: {None: 1},
    lambda: {True: 1},
    lambda: (1, 2),
    lambda: {1, 2},
    lambda: b"bytes",
    lambda: bytearray(b"x"),
    lambda: Decimal(1),
    lambda: datetime.fromtimestamp(0, UTC),
    lambda: OrderedDict[str, int](a=1),
    lambda: iter([1]),
    object,
    lambda: int,
    lambda: 1j,
    lambda: ...,
)
"""Functions that make values that are no data, at any place."""


class HostileValues:
    """Draws values."""

    def __init__(self, seed: str) -> None:
        self._luck: random.Random = seeded(seed)

    def values(self, count: int) -> Iterator[Any]:
        """``count`` values that a store has to return unchanged."""
        for _ in range(count):
            yield self.value()

    def refused(self, count: int) -> Iterator[Any]:
        """``count`` values that a store has to refuse: each contains something that is no data."""
        for _ in range(count):
            yield self._around(self._luck.choice(NO_DATA)())

    def value(self, depth: int = 0) -> Any:
        """A value that is data."""
        kind = self._luck.random()
        if depth < _DEEP and kind < _NESTED:
            return self._container(depth)
        return self._luck.choice((self.text, self.number, self._plain))()

    def text(self, most: int = 12) -> str:
        """A text without lone surrogates."""
        if self._luck.random() < _KNOWN:
            return self._luck.choice(TEXTS)
        return "".join(self._character() for _ in range(self._luck.randrange(most)))

    def number(self) -> int | float:
        """A number that JSON can carry without loss."""
        kind = self._luck.randrange(3)
        if kind == 0:
            return self._luck.choice(NUMBERS)
        if kind == 1:
            return self._luck.randint(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
        return math.ldexp(self._luck.uniform(-1, 1), self._luck.randrange(-1_000, 1_000))

    def _plain(self) -> bool | None:
        return self._luck.choice((None, True, False))

    def _container(self, depth: int) -> Any:
        size = self._luck.randrange(4)
        if self._luck.random() < 0.5:
            return [self.value(depth + 1) for _ in range(size)]
        return {self.text(): self.value(depth + 1) for _ in range(size)}

    def _around(self, value: Any) -> Any:
        for _ in range(self._luck.randrange(4)):
            value = [self.value(_DEEP), value] if self._luck.random() < 0.5 else {self.text(): value}
        return value

    def _character(self) -> str:
        limit = self._luck.choice((0x80, 0x800, 0x10000, 0x110000))
        code = self._luck.randrange(limit)
        return chr(code) if not _SURROGATES[0] <= code < _SURROGATES[1] else "\ufffd"


_DEEP: Final = 4
_NESTED: Final = 0.4
_KNOWN: Final = 0.3
_SURROGATES: Final = (0xD800, 0xE000)
