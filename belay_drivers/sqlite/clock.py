"""What a SQLite file's processes do about a wall clock that is set: its times are theirs, and no server has others."""

from typing import Final

from sqlalchemy import Connection, and_, bindparam, or_, select, update

from belay_core.clock import Clock, reading
from belay_core.records.run import RunStatus
from belay_drivers.sql.connection.database import Database
from belay_drivers.sql.schema.tables import runs

TOLERANCE_MS: Final = 1_000.0
"""How far the wall clock may move beside the boot clock between two looks without counting as set."""

# What is ready has been so since it was written: a wait until later has no such time, but for a start that is delayed.
_SET_BACK: Final = or_(
    and_(
        runs.c.ready_at > bindparam("b_now"),
        or_(runs.c.status != RunStatus.PENDING.value, runs.c.ready_at <= runs.c.created_at),
    ),
    and_(runs.c.status == RunStatus.RUNNING.value, runs.c.heartbeat_at > bindparam("b_now")),
)
_FOUND: Final = select(runs.c.run_id).where(_SET_BACK).limit(1)
_READY: Final = (
    update(runs)
    .where(
        runs.c.ready_at > bindparam("b_now"),
        or_(runs.c.status != RunStatus.PENDING.value, runs.c.ready_at <= runs.c.created_at),
    )
    .values(ready_at=bindparam("b_ready"))
)
_HEARD: Final = (
    update(runs)
    .where(runs.c.status == RunStatus.RUNNING.value, runs.c.heartbeat_at > bindparam("b_now"))
    .values(heartbeat_at=bindparam("b_heard"))
)


class ClockWatch:
    """Notices that the wall clock was set, by the boot clock beside it.

    After a step no owner counts as stale for a whole stale period: by then each that works has renewed its leases by
    the new time. After a step back, what was ready before it, and the signs of life from before it, lie in the future:
    they are set to the present, once.
    """

    def __init__(self, clock: Clock, stale_after_ms: float, database: Database) -> None:
        self._clock = clock
        self._stale_after_ms = stale_after_ms
        self._database = database
        self._last = (clock.now(), clock.elapsed())
        self._unsettled_until = float("-inf")
        self._may_lie_ahead = True
        """Whether times in the file may be ahead of the clock: it may have been set back while no process looked."""

    def settled(self) -> bool:
        """Whether the wall clock was not set within the last stale period."""
        self._look()
        return self._clock.elapsed() >= self._unsettled_until

    async def refresh(self) -> None:
        """Set times that lie ahead to the present, where the clock was set back."""
        self._look()
        if not self._may_lie_ahead:
            return
        now = {"b_now": reading(self._clock) + int(TOLERANCE_MS)}
        if await self._database.read(lambda tx: tx.execute(_FOUND, now).first()) is not None:
            await self._database.write(self._set_to_present)
        self._may_lie_ahead = False

    def _look(self) -> None:
        now, elapsed = self._clock.now(), self._clock.elapsed()
        moved = (now - self._last[0]) - (elapsed - self._last[1])
        self._last = (now, elapsed)
        if abs(moved) > TOLERANCE_MS:
            self._unsettled_until = elapsed + self._stale_after_ms
            self._may_lie_ahead = self._may_lie_ahead or moved < 0

    def _set_to_present(self, tx: Connection) -> None:
        now = reading(self._clock)
        ahead = now + int(TOLERANCE_MS)
        tx.execute(_READY, {"b_now": ahead, "b_ready": now})
        tx.execute(_HEARD, {"b_now": ahead, "b_heard": now})
