"""Attempts in SQL: the contract's part (specs, run store 7) and the engine's."""

from typing_extensions import override

from belay_core.errors import AttemptStoreError
from belay_core.records.attempt import AttemptStoreOptions
from belay_core.stores.attempts import AttemptStore
from belay_drivers.sql.stores.attempts.contract import SqlAttemptContract
from belay_drivers.sql.stores.attempts.history import ReadHistories
from belay_drivers.sql.stores.attempts.record import RecordAttempts
from belay_drivers.sql.stores.base import Parts

__all__ = ["SqlAttemptContract", "SqlAttemptStore"]


class SqlAttemptStore(SqlAttemptContract, RecordAttempts, ReadHistories, AttemptStore):
    """Both parts, over one database."""

    error = AttemptStoreError

    def __init__(self, parts: Parts, options: AttemptStoreOptions | None = None) -> None:
        SqlAttemptContract.__init__(self, parts.database, options)
        RecordAttempts.__init__(self, parts)

    @override
    def make_with(self, options: AttemptStoreOptions) -> "SqlAttemptStore":
        """The same attempts under other options (7)."""
        return SqlAttemptStore(self._parts, self._checked(options))
