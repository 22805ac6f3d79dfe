"""The interface of the change feed to one database: consistent reads, and the feed's order."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, RowMapping

from belay_core.records.changes import FeedPosition
from belay_drivers.sql.connection.connection_runner import Session
from belay_drivers.sql.connection.database import Sender


class Feed(Protocol):
    """The journal in an order in which no new entry appears before one that was read already."""

    @abstractmethod
    def head(self, tx: Connection) -> FeedPosition:
        """The position of the newest entry that may be read; ``START`` without entries."""

    @abstractmethod
    def since(self, tx: Connection, position: FeedPosition, limit: int) -> Sequence[RowMapping]:
        """The latest entry of each run that changed after this position, in order.

        The rows have ``run_id entry at kind facts full_id`` and the columns that ``place_of`` needs.
        """

    @abstractmethod
    def place_of(self, row: RowMapping) -> FeedPosition:
        """The position of an entry that was read."""


@dataclass(frozen=True, slots=True)
class Views:
    """Reads of one body through ``together`` are of one snapshot; ``hold`` keeps a connection for a longer one."""

    together: Sender
    hold: Callable[[], Awaitable[Session]]
    feed: Feed
