"""Snapshots: several reads of one state of the database."""

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from belay_core.stores.run_contract import Lineages, RunReads


class SnapshotReads(RunReads, Lineages, Protocol):
    """``get``, ``lineage`` and ``latest_round``, all of the same state."""


class Snapshots(Protocol):
    """Opens snapshots of the database."""

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[SnapshotReads]:
        """Reads that see the state of the database at the first of them, until the block is left.

        Nothing is locked and no writer waits. A block holds a connection from its first read on: keep it short.
        """
