"""What one database has to offer those who follow it: reads of one moment, and its feed."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, RowMapping

from belay_core.records.changes import FeedPosition
from belay_drivers.sql.connection.connection_runner import Session
from belay_drivers.sql.connection.database import Sender


class Feed(Protocol):
    """The journal in an order in which no entry ever appears before one that was read already."""

    @abstractmethod
    def head(self, tx: Connection) -> FeedPosition:
        """The place of the newest entry that may be read; ``START`` where there is none."""

    @abstractmethod
    def since(self, tx: Connection, position: FeedPosition, limit: int) -> Sequence[RowMapping]:
        """The latest entry of each run that changed behind this place, in order.

        The rows say ``run_id entry at kind facts full_id`` and what ``place_of`` needs.
        """

    @abstractmethod
    def place_of(self, row: RowMapping) -> FeedPosition:
        """The place of an entry that was read."""


@dataclass(frozen=True, slots=True)
class Views:
    """What is read through ``together`` in one body is of one moment; ``hold`` keeps such a moment for longer."""

    together: Sender
    hold: Callable[[], Awaitable[Session]]
    feed: Feed
