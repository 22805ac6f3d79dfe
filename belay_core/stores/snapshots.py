"""Snapshots: several reads of one moment."""

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from belay_core.stores.run_contract import Lineages, RunReads


class SnapshotReads(RunReads, Lineages, Protocol):
    """``get``, ``lineage`` and ``latest_round``, all of the same moment."""


class Snapshots(Protocol):
    """Opens views of the database that stand still."""

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[SnapshotReads]:
        """Reads that see the database as it stood at the first of them, until the block is left.

        Nothing is locked and nobody waits. A block holds a connection from its first read on: keep it short.
        """
