"""Single statements for what happens most (kernel 3): each fences, changes and answers in one round trip."""

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from belay_core.clock import Millis
from belay_core.records.commands import Decide, Renew
from belay_core.values import json
from belay_drivers.postgres.channel import StatementClient, TransactionChannel
from belay_drivers.postgres.clock import FollowingClock
from belay_drivers.sql.connection.database import Database, Done, Sent, Unknown
from belay_drivers.sql.statements.hot import Acquisition, HistoryRows, HotStatements, decision_facts
from belay_drivers.sql.statements.keys import key_of
from belay_drivers.sql.statements.rows import APPROVALS_SQL, RECORDS_SQL, Columns

# Locking in the order of the keys keeps two overlapping renewals from waiting for each other, and looking each run up
# by itself keeps the plan from scanning them all where the database has no statistics yet.
_RENEW: Final = """
WITH asked AS (
  SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])
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
  UPDATE belay_runs SET heartbeat_at = greatest(heartbeat_at, $1::bigint)
  FROM held WHERE belay_runs.run_id = held.run_id AND belay_runs.status = 'running'
  RETURNING held.place - 1 AS place, ready_at, cancel_requested_at
)
SELECT c.ms AS database_ms, renewed.*
FROM (SELECT extract(epoch FROM clock_timestamp()) * 1000.0 AS ms) c LEFT JOIN renewed ON true
"""

_RECORDS: Final = f"""{RECORDS_SQL}
WHERE belay_runs.run_id = ANY ($1::text[])"""

_ATTEMPTS: Final = "SELECT * FROM belay_attempts WHERE run_id = ANY ($1::text[]) AND kind IS NOT NULL"
_APPROVALS: Final = f"""{APPROVALS_SQL}
WHERE belay_approvals.run_id = ANY ($1::text[])"""
_OPEN: Final = f"""{APPROVALS_SQL}
  JOIN belay_runs ON belay_runs.run_id = belay_approvals.run_id
WHERE belay_approvals.run_id = $1::text AND belay_approvals.decision IS NULL
  AND belay_runs.status NOT IN ('cancelled', 'completed', 'failed')
ORDER BY belay_approvals.asked_at, belay_approvals.approval_id LIMIT $2::bigint"""

# Asked four times a second. Over the pool, without statistics, all runs would be read to find that none is due: 92 ms
# beside a million finished ones, against 0.02 by the index.
_DUE: Final = """
SELECT run_id FROM belay_runs
WHERE status = 'suspended' AND workflow IS NOT NULL AND waiting_reason IS NOT NULL AND waiting_wake_at <= $1::bigint
  AND (ready_at IS NULL OR ready_at > $1::bigint)
ORDER BY waiting_wake_at, run_id LIMIT $2::bigint
"""

_ACQUIRE: Final = """
WITH lost AS MATERIALIZED (
  SELECT r.run_id, r.priority, r.heartbeat_at, gone.nonce IS NULL AS silent
  FROM belay_runs r LEFT JOIN unnest($9::text[], $10::bigint[], $11::text[]) AS gone (host_id, pid, nonce)
    ON r.owner_host_id = gone.host_id AND r.owner_pid = gone.pid AND r.owner_nonce = gone.nonce
  WHERE r.status = 'running' AND r.workflow = ANY ($8::text[])
    AND (r.heartbeat_at < $2::bigint OR gone.nonce IS NOT NULL)
  ORDER BY silent, r.priority DESC, r.heartbeat_at, r.run_id
  LIMIT $3::bigint
  FOR NO KEY UPDATE OF r SKIP LOCKED
), waiting AS MATERIALIZED (
  SELECT t.* FROM unnest($8::text[]) AS w (workflow) CROSS JOIN LATERAL (
    SELECT run_id, priority, ready_at FROM belay_runs
    WHERE workflow = w.workflow AND ready_at IS NOT NULL AND ready_at <= $1::bigint
      AND status IN ('pending', 'suspended')
    ORDER BY priority DESC, ready_at, run_id
    LIMIT $3::bigint
    FOR NO KEY UPDATE SKIP LOCKED
  ) t
), chosen AS MATERIALIZED (
  SELECT * FROM (
    SELECT run_id, 0 AS kind,
      row_number() OVER (ORDER BY silent, priority DESC, heartbeat_at, run_id) AS place FROM lost
    UNION ALL
    SELECT run_id, 1, row_number() OVER (ORDER BY priority DESC, ready_at, run_id) FROM waiting
  ) AS found
  ORDER BY kind, place LIMIT $3::bigint
), taken AS (
  UPDATE belay_runs r SET
    status = 'running', owner_host_id = $4::text, owner_pid = $5::bigint, owner_nonce = $6::text,
    heartbeat_at = $1::bigint, started_at = coalesce(r.started_at, $1::bigint), epoch = r.epoch + 1,
    last_nonce = $6::text, ready_at = NULL, last_entry = r.last_entry + 1,
    takeovers = r.takeovers + CASE WHEN r.status = 'running' THEN 1 ELSE 0 END,
    waiting_reason = NULL, waiting_token = NULL, waiting_wake_at = NULL,
    claim_host_id = NULL, claim_pid = NULL, claim_nonce = NULL, claimed_at = NULL
  FROM chosen WHERE r.run_id = chosen.run_id
  RETURNING r.*, chosen.kind, chosen.place
), noted AS (
  INSERT INTO belay_journal (run_id, entry, at, kind, facts)
  SELECT run_id, last_entry, $1::bigint, 'ownership.owned', $7::text FROM taken
)
SELECT taken.*, v.full_id, p.full_id AS parent_full_id, v.input, v.result, v.error, v.waiting_request, v.trace
FROM taken JOIN belay_run_values v ON v.run_id = taken.run_id
  LEFT JOIN belay_run_values p ON p.run_id = taken.parent_run_id
ORDER BY taken.priority DESC, taken.kind, taken.place
"""

# The run's lock first, then the approval's, which is looked at again if it had to be waited for. Which run and gate an
# approval is of never changes, so that this much is read without a lock.
_DECIDE: Final = """
WITH asked AS MATERIALIZED (
  SELECT p.run_id, p.gate, coalesce(v.full_id, p.run_id) AS full_id
  FROM belay_approvals p LEFT JOIN belay_run_values v ON v.run_id = p.run_id
  WHERE p.approval_id = $1::text
), held AS MATERIALIZED (
  SELECT r.run_id FROM asked CROSS JOIN LATERAL (
    SELECT run_id FROM belay_runs WHERE run_id = asked.run_id AND status NOT IN ('cancelled', 'completed', 'failed')
    FOR NO KEY UPDATE
  ) r
), undecided AS MATERIALIZED (
  SELECT p.run_id FROM held CROSS JOIN LATERAL (
    SELECT run_id FROM belay_approvals
    WHERE approval_id = $1::text AND run_id = held.run_id AND decision IS NULL AND subject_digest = $2::text
      AND (lapse_at IS NULL OR lapse_at > $3::bigint)
    FOR NO KEY UPDATE
  ) p
), decided AS (
  UPDATE belay_approvals p SET decision = $4::text, decided_by = $5::text, decided_at = $3::bigint,
    reason = $6::text, edited = $7::text, edited_digest = $8::text
  FROM undecided WHERE p.approval_id = $1::text AND p.run_id = undecided.run_id
  RETURNING p.run_id
), marked AS (
  UPDATE belay_runs r SET last_entry = r.last_entry + 1, ready_at = CASE
    WHEN r.status = 'running' AND r.ready_at >= $3::bigint THEN r.ready_at + 1
    WHEN r.status <> 'running' AND r.ready_at < $3::bigint THEN r.ready_at
    ELSE $3::bigint END
  FROM decided WHERE r.run_id = decided.run_id
  RETURNING r.run_id, r.last_entry
), noted AS (
  INSERT INTO belay_journal (run_id, entry, at, kind, facts)
  SELECT run_id, last_entry, $3::bigint, 'decided', $9::text || to_json(asked.gate)::text || $10::text
  FROM marked JOIN asked USING (run_id)
)
SELECT asked.full_id FROM marked JOIN asked USING (run_id)
"""


class PostgresHotStatements(HotStatements):
    """The hot statements; ``clock`` learns the time from the replies, where it follows the database's."""

    def __init__(
        self, database: Database, channel: StatementClient, looks: StatementClient, clock: FollowingClock | None = None
    ) -> None:
        self._database = database
        self._channel = channel
        self._looks = looks
        self._clock = clock

    async def records(self, keys: Sequence[str]) -> Sequence[Columns]:
        """Read runs, past whatever is being written."""
        given = (list(keys),)
        return await self._database.look(lambda: self._looks.ask(_RECORDS, given))

    async def renew(self, command: Renew, now_ms: Millis) -> Sent[Sequence[Columns]]:
        """Renew leases; the reply tells the time as well."""
        given = (
            now_ms,
            [key_of(lease.run_id) for lease in command.leases],
            [lease.owner.host_id for lease in command.leases],
            [lease.owner.pid for lease in command.leases],
            [lease.owner.nonce for lease in command.leases],
            [lease.epoch for lease in command.leases],
        )
        return await self._database.send_direct(lambda: self._renewed(given))

    async def acquire(self, asked: Acquisition) -> Sent[Sequence[Columns]]:
        """Own runs and note it in their journals."""
        command = asked.command
        dead = tuple(dict.fromkeys(command.dead))
        given = (
            asked.now_ms,
            asked.stale_before,
            command.limit,
            command.owner.host_id,
            command.owner.pid,
            command.owner.nonce,
            asked.facts,
            list(dict.fromkeys(command.workflows)),
            [owner.host_id for owner in dead],
            [owner.pid for owner in dead],
            [owner.nonce for owner in dead],
        )
        return await self._database.send_direct(lambda: self._channel.ask(_ACQUIRE, given))

    @override
    async def decide(self, command: Decide, now_ms: Millis) -> Sent[str | None]:
        """Decide where nothing stands in the way."""
        given = (
            command.approval_id,
            command.digest,
            now_ms,
            command.decision,
            command.by,
            command.reason,
            command.edited,
            command.edited_digest,
            *_round_gate(command),
        )
        sent = await self._database.send_direct(lambda: self._channel.ask(_DECIDE, given))
        if isinstance(sent, Unknown):
            return Unknown(sent.failure, None)
        return Done(sent.value[0]["full_id"] if sent.value else None)

    @override
    async def history(self, keys: Sequence[str], unread: Sequence[str]) -> HistoryRows | None:
        """Read runs with all that is recorded of them; through a pooler each statement would be a transaction."""
        if isinstance(self._looks, TransactionChannel):
            return None
        return await self._database.look(lambda: self._stored(list(keys), list(unread)))

    @override
    async def due(self, now_ms: Millis, limit: int) -> Sequence[str] | None:
        """Find runs whose moment has come."""
        if isinstance(self._looks, TransactionChannel):
            return None
        rows = await self._database.look(lambda: self._looks.ask(_DUE, (now_ms, limit)))
        return [row["run_id"] for row in rows]

    @override
    async def asked(self, key: str, limit: int) -> Sequence[Columns] | None:
        """Read what waits at gates of a run, the oldest first."""
        if isinstance(self._looks, TransactionChannel):
            return None
        return await self._database.look(lambda: self._looks.ask(_OPEN, (key, limit)))

    async def _stored(self, keys: list[str], unread: list[str]) -> HistoryRows:
        ask = self._looks.ask
        runs = await ask(_RECORDS, (unread,)) if unread else ()
        return HistoryRows(runs, await ask(_ATTEMPTS, (keys,)), await ask(_APPROVALS, (keys,)))

    async def _renewed(self, given: tuple[Any, ...]) -> Sequence[Columns]:
        asked = self._elapsed()
        rows = await self._channel.ask(_RENEW, given)
        if self._clock is not None:
            self._clock.learn(asked, self._elapsed(), float(rows[0]["database_ms"]))
        return [row for row in rows if row["place"] is not None]

    def _elapsed(self) -> float:
        return 0.0 if self._clock is None else self._clock.elapsed()


def _round_gate(command: Decide) -> tuple[str, str]:
    """What the journal says of a decision, before and after the gate, which the statement knows and writes as JSON."""
    facts = decision_facts(command, "")
    before, after = json.encode(facts).split('"gate":""', 1)
    return f'{before}"gate":', after
