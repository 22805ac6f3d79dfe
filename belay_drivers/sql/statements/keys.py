"""Key form: identifiers as indexes hold them (kernel 2)."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

from belay_core import limits

_HASHED: Final = "sha256:"


def key_of(text: str) -> str:
    """The identifier itself, or a hash of it if it is too long for an index or has the form of a hash."""
    size = len(text) if text.isascii() else len(text.encode())
    if size <= limits.MAXIMUM_KEY_BYTES and not text.startswith(_HASHED):
        return text
    return _HASHED + sha256(text.encode()).hexdigest()


def full_text_of(text: str, key: str) -> str | None:
    """The identifier, to be stored with its key; None if both are equal."""
    return None if text == key else text


# Runs of one workflow have the same keys, and attempts of one step the same key.
@lru_cache(maxsize=1024)
def step_digest(step_key: str) -> str:
    """The key of an engine's attempt: lower-case hex SHA-256 of its full step key."""
    return sha256(step_key.encode()).hexdigest()


def padded(keys: Sequence[str]) -> list[str]:
    """These keys, padded with the last one to a few lengths, so that prepared statements are reused."""
    length = 1 << (len(keys) - 1).bit_length()
    return [*keys, *[keys[-1]] * (length - len(keys))]
