"""The base class of the auxiliary stores."""

from collections.abc import Awaitable
from typing import ClassVar, TypeVar

from belay_core.clock import Clock, Millis, reading
from belay_core.errors import DatabaseError, StoreError
from belay_drivers.sql.connection.database import Sender
from belay_drivers.sql.connection.error_translation import code_of, translate_errors
from belay_drivers.sql.statements.rows import Undecodable

T = TypeVar("T")


class StoreRole:
    """Operations over one database and its clock, whose defects are of the class ``error``."""

    error: ClassVar[type[StoreError]]

    def __init__(self, database: Sender, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def _now(self) -> Millis:
        return reading(self._clock)

    async def _guard(self, method: str, work: Awaitable[T]) -> T:
        def fails(failure: DatabaseError | Undecodable) -> StoreError:
            if isinstance(failure, Undecodable):
                return self.error("decode_failed", method, f"could not decode {failure.table} row")
            cause = {"category": failure.code, "cause": failure}
            return self.error(code_of(failure), method, "database operation failed", cause)

        return await translate_errors(work, fails)
