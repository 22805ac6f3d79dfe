"""What the file says, in memory: rows, and the changes of one transaction."""

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from belay_core.clock import Millis
from belay_core.ids import RunId
from belay_core.limits import HEARTBEAT_STALE_AFTER
from belay_core.records.attempt import ABSENT, Attempt, AttemptId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunRow, RunStatus
from belay_core.stores.run_contract import AlreadyClaimed, ClaimLoss, HeartbeatFresh, NotFound, SnapshotChanged
from belay_core.values import json
from belay_jsonl.log import Entry

Columns: TypeAlias = dict[str, Any]
"""Columns by name; of an attempt its values are JSON text and None where there is none."""
AttemptKey: TypeAlias = tuple[str, str, int]

VALUES = ("checkpoint", "error", "outcome", "meta")
MOMENTS = ("started_at_ms", "finished_at_ms", "heartbeat_at_ms")
_OWNERS = ("owner", "claim")


@dataclass
class Tables:
    """Everything that is kept."""

    runs: dict[RunId, RunRow] = field(default_factory=dict[RunId, RunRow])
    attempts: dict[AttemptKey, Columns] = field(default_factory=dict[AttemptKey, Columns])
    acknowledged: set[RunId] = field(default_factory=set[RunId])

    def apply(self, entry: Entry) -> None:
        """Make the changes of one transaction."""
        for table, key, columns in entry:
            if table == "run":
                self._apply_run(RunId(key), columns)
            elif table == "attempt":
                run_id, digest, attempt = key
                kept = self.attempts.setdefault((run_id, digest, attempt), {})
                kept.update(columns)
            else:
                self.acknowledged.add(RunId(key))

    def _apply_run(self, run_id: RunId, columns: Columns) -> None:
        known = self.runs.get(run_id)
        given = {**columns}
        if "status" in given:
            given["status"] = RunStatus(given["status"])
        for name in _OWNERS:
            if given.get(name) is not None:
                given[name] = OwnerId(*given[name])
        self.runs[run_id] = RunRow(run_id=run_id, **given) if known is None else replace(known, **given)

    def owns(self, owner: OwnerId, run_id: RunId) -> bool:
        """The fence: whether this owner may write to the run. Only a running run has an owner."""
        row = self.runs.get(run_id)
        return row is not None and row.owner == owner


@dataclass
class Transaction:
    """The tables as they stand, and what is to change; nothing changes before it is written."""

    tables: Tables
    entry: Entry = field(default_factory=list[Any])

    def change_run(self, run_id: RunId, **columns: Any) -> None:
        """Set columns of a run, or make it."""
        spelled = {name: _spelled(value) for name, value in columns.items()}
        self.entry.append(["run", run_id, spelled])

    def change_attempt(self, key: AttemptKey, columns: Columns) -> None:
        """Set columns of an attempt, or make it."""
        self.entry.append(["attempt", list(key), columns])

    def acknowledge(self, run_id: RunId, owner: OwnerId, now_ms: Millis) -> None:
        """Keep who heard of a cancel request first, and when."""
        self.entry.append(["acknowledged", run_id, {"owner": _spelled(owner), "now_ms": now_ms}])


def _spelled(value: Any) -> Any:
    return [value.host_id, value.pid, value.nonce] if isinstance(value, OwnerId) else value


def key_of(attempt: Any) -> AttemptKey:
    """What names an attempt."""
    return attempt.run_id, attempt.step_key_digest, attempt.attempt


def columns_of(record: Any, names: tuple[str, ...]) -> Columns:
    """The values that a record has, as they are stored; they were admitted before."""
    given = {name: getattr(record, name) for name in names}
    return {name: json.encode(value) for name, value in given.items() if value is not ABSENT}


def whole(attempt: Attempt) -> Columns:
    """Every column of an attempt; what is absent takes away what stood there."""
    absent = dict.fromkeys(VALUES)
    moments = {name: getattr(attempt, name) for name in MOMENTS}
    return {"state": attempt.state, **moments, **absent, **columns_of(attempt, VALUES)}


def attempt_of(named: AttemptId, columns: Columns) -> Attempt:
    """The attempt as its reader gets it, its values made anew."""
    texts = {name: columns[name] for name in VALUES}
    values = {name: ABSENT if text is None else json.decode(text) for name, text in texts.items()}
    kept = {name: columns[name] for name in ("state", *MOMENTS)}
    return Attempt(named.run_id, named.step_key_digest, named.attempt, **kept, **cast("Any", values))


def same(one: Columns, other: Columns) -> bool:
    """Whether two attempts say the same; the order of keys in a value says nothing."""
    if any(one[name] != other[name] for name in ("state", *MOMENTS)):
        return False
    return all(_same_value(one[name], other[name]) for name in VALUES)


def _same_value(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return json.same_json(json.decode(one), json.decode(other))


def is_fresh(row: RunRow, now_ms: Millis) -> bool:
    """Whether the owner of a run was heard of lately."""
    return row.heartbeat_at_ms is not None and row.heartbeat_at_ms >= now_ms - HEARTBEAT_STALE_AFTER


def loss(row: RunRow | None, now_ms: Millis) -> ClaimLoss:
    """Why a run could not be claimed, the first reason that holds."""
    if row is None:
        return NotFound()
    if row.claim is not None:
        return AlreadyClaimed()
    return HeartbeatFresh() if is_fresh(row, now_ms) else SnapshotChanged()
