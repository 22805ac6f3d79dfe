"""Ids that count up, the same in every run of a test."""

from belay_core.ids import IdSource


class SequentialIds(IdSource):
    """Ids in the shape of UUIDv7 and nonces, counted from 1."""

    def __init__(self) -> None:
        self._ids = 0
        self._nonces = 0

    def new(self) -> str:
        """The next id."""
        self._ids += 1
        return f"00000000-0000-7000-8000-{self._ids:012d}"

    def nonce(self) -> str:
        """The next nonce."""
        self._nonces += 1
        return f"{self._nonces:016x}"
