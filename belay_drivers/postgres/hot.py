"""Single statements for what happens most (kernel 3): each fences, changes and answers in one round trip."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ARRAY, BigInteger, Connection, RowMapping, Text, TextClause, bindparam, text

from belay_core.commands import Acquire, Renew
from belay_core.moments import Millis
from belay_drivers.postgres.clock import FollowingClock
from belay_drivers.sql.dialect import HotPaths
from belay_drivers.sql.keys import key_of

# Locking in the order of the keys keeps two overlapping renewals from waiting for each other, and looking each run up
# by itself keeps the plan from scanning them all where the database has no statistics yet.
_RENEW: Final = """
WITH asked AS (
  SELECT * FROM unnest(:b_runs, :b_hosts, :b_pids, :b_nonces, :b_epochs)
    WITH ORDINALITY AS t (run_id, host_id, pid, nonce, epoch, place)
  ORDER BY run_id COLLATE "C", place
), held AS MATERIALIZED (
  SELECT asked.place, r.run_id
  FROM asked CROSS JOIN LATERAL (
    SELECT run_id FROM belay_runs
    WHERE run_id = asked.run_id AND status = 'running' AND owner_host_id = asked.host_id
      AND owner_pid = asked.pid AND owner_nonce = asked.nonce AND epoch = asked.epoch
    FOR NO KEY UPDATE
  ) r
), renewed AS (
  UPDATE belay_runs SET heartbeat_at = greatest(heartbeat_at, :b_now)
  FROM held WHERE belay_runs.run_id = held.run_id AND belay_runs.status = 'running'
  RETURNING held.place - 1 AS place, ready_at, cancel_requested_at
)
SELECT c.ms AS database_ms, renewed.*
FROM (SELECT extract(epoch FROM clock_timestamp()) * 1000.0 AS ms) c LEFT JOIN renewed ON true
"""

_ACQUIRE: Final = """
WITH lost AS MATERIALIZED (
  SELECT r.run_id, r.priority, r.heartbeat_at, gone.nonce IS NULL AS silent
  FROM belay_runs r LEFT JOIN unnest(:b_dead_hosts, :b_dead_pids, :b_dead_nonces) AS gone (host_id, pid, nonce)
    ON r.owner_host_id = gone.host_id AND r.owner_pid = gone.pid AND r.owner_nonce = gone.nonce
  WHERE r.status = 'running' AND r.workflow = ANY (:b_workflows)
    AND (r.heartbeat_at < :b_stale_before OR gone.nonce IS NOT NULL)
  ORDER BY silent, r.priority DESC, r.heartbeat_at, r.run_id
  LIMIT :b_limit
  FOR NO KEY UPDATE OF r SKIP LOCKED
), waiting AS MATERIALIZED (
  SELECT t.* FROM unnest(:b_workflows) AS w (workflow) CROSS JOIN LATERAL (
    SELECT run_id, priority, ready_at FROM belay_runs
    WHERE workflow = w.workflow AND ready_at IS NOT NULL AND ready_at <= :b_now
      AND status IN ('pending', 'suspended')
    ORDER BY priority DESC, ready_at, run_id
    LIMIT :b_limit
    FOR NO KEY UPDATE SKIP LOCKED
  ) t
), chosen AS MATERIALIZED (
  SELECT * FROM (
    SELECT run_id, 0 AS kind,
      row_number() OVER (ORDER BY silent, priority DESC, heartbeat_at, run_id) AS place FROM lost
    UNION ALL
    SELECT run_id, 1, row_number() OVER (ORDER BY priority DESC, ready_at, run_id) FROM waiting
  ) AS found
  ORDER BY kind, place LIMIT :b_limit
), taken AS (
  UPDATE belay_runs r SET
    status = 'running', owner_host_id = :b_host, owner_pid = :b_pid, owner_nonce = :b_nonce, heartbeat_at = :b_now,
    started_at = coalesce(r.started_at, :b_now), epoch = r.epoch + 1, last_nonce = :b_nonce, ready_at = NULL,
    takeovers = r.takeovers + CASE WHEN r.status = 'running' THEN 1 ELSE 0 END, last_entry = r.last_entry + 1,
    waiting_reason = NULL, waiting_token = NULL, waiting_wake_at = NULL,
    claim_host_id = NULL, claim_pid = NULL, claim_nonce = NULL, claimed_at = NULL
  FROM chosen WHERE r.run_id = chosen.run_id
  RETURNING r.*, chosen.kind, chosen.place
), noted AS (
  INSERT INTO belay_journal (run_id, entry, at, kind, facts)
  SELECT run_id, last_entry, :b_now, 'ownership.owned', :b_facts FROM taken
)
SELECT taken.*, v.full_id, p.full_id AS parent_full_id, v.input, v.result, v.error, v.waiting_request, v.trace
FROM taken JOIN belay_run_values v ON v.run_id = taken.run_id
  LEFT JOIN belay_run_values p ON p.run_id = taken.parent_run_id
ORDER BY taken.priority DESC, taken.kind, taken.place
"""


def _typed(sql: str, *, texts: str = "", numbers: str = "", text_lists: str = "", number_lists: str = "") -> TextClause:
    """A statement whose parameters say their types, which the driver does not guess."""
    kinds = (
        (texts, Text()),
        (numbers, BigInteger()),
        (text_lists, ARRAY(Text)),
        (number_lists, ARRAY(BigInteger)),
    )
    return text(sql).bindparams(*(bindparam(name, type_=kind) for names, kind in kinds for name in names.split()))


_RENEW_STATEMENT: Final = _typed(
    _RENEW, numbers="b_now", text_lists="b_runs b_hosts b_nonces", number_lists="b_pids b_epochs"
)
_ACQUIRE_STATEMENT: Final = _typed(
    _ACQUIRE,
    texts="b_host b_nonce b_facts",
    numbers="b_now b_pid b_stale_before b_limit",
    text_lists="b_workflows b_dead_hosts b_dead_nonces",
    number_lists="b_dead_pids",
)


class PostgresHotPaths(HotPaths):
    """The hot statements; ``clock`` learns the time from the replies, where it follows the database's."""

    def __init__(self, clock: FollowingClock | None = None) -> None:
        self._clock = clock

    def renew(self, tx: Connection, command: Renew, now_ms: Millis) -> Sequence[RowMapping]:
        """Renew leases; the reply tells the time as well."""
        leases = command.leases
        asked = self._elapsed()
        rows = (
            tx.execute(
                _RENEW_STATEMENT,
                {
                    "b_now": now_ms,
                    "b_runs": [key_of(lease.run_id) for lease in leases],
                    "b_hosts": [lease.owner.host_id for lease in leases],
                    "b_pids": [lease.owner.pid for lease in leases],
                    "b_nonces": [lease.owner.nonce for lease in leases],
                    "b_epochs": [lease.epoch for lease in leases],
                },
            )
            .mappings()
            .all()
        )
        if self._clock is not None:
            self._clock.learn(asked, self._elapsed(), float(rows[0]["database_ms"]))
        return [row for row in rows if row["place"] is not None]

    def acquire(
        self, tx: Connection, command: Acquire, now_ms: Millis, stale_before: Millis, facts: str
    ) -> Sequence[RowMapping]:
        """Own runs and note it in their journals."""
        dead = tuple(dict.fromkeys(command.dead))
        return (
            tx.execute(
                _ACQUIRE_STATEMENT,
                {
                    "b_host": command.owner.host_id,
                    "b_pid": command.owner.pid,
                    "b_nonce": command.owner.nonce,
                    "b_facts": facts,
                    "b_now": now_ms,
                    "b_stale_before": stale_before,
                    "b_limit": command.limit,
                    "b_workflows": list(dict.fromkeys(command.workflows)),
                    "b_dead_hosts": [owner.host_id for owner in dead],
                    "b_dead_pids": [owner.pid for owner in dead],
                    "b_dead_nonces": [owner.nonce for owner in dead],
                },
            )
            .mappings()
            .all()
        )

    def _elapsed(self) -> float:
        return 0.0 if self._clock is None else self._clock.elapsed()
