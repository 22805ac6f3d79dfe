"""The tables as statements use them. Migrations create them; a test compares the two.

Identifiers are in key form (``keys``), times are whole milliseconds, JSON is text. Left out are the one column of
the journal that only its feed reads and everything that no statement names: checks, storage settings.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()


def _text(name: str, *, null: bool = True) -> Column[str]:
    return Column(name, Text, nullable=null)


def _ms(name: str, *, null: bool = True) -> Column[int]:
    return Column(name, BigInteger, nullable=null)


def _run_id() -> Column[str]:
    return Column("run_id", Text, ForeignKey("belay_runs.run_id"), nullable=False)


runs = Table(
    "belay_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    _text("status", null=False),
    _text("workflow"),
    _text("version"),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    _ms("ready_at"),
    _ms("created_at", null=False),
    _ms("started_at"),
    _ms("finished_at"),
    _text("owner_host_id"),
    Column("owner_pid", BigInteger),
    _text("owner_nonce"),
    _ms("heartbeat_at"),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("write_seq", BigInteger, nullable=False, server_default=text("0")),
    _text("last_nonce"),
    Column("takeovers", Integer, nullable=False, server_default=text("0")),
    _text("claim_host_id"),
    Column("claim_pid", BigInteger),
    _text("claim_nonce"),
    _ms("claimed_at"),
    Column("parent_run_id", Text, ForeignKey("belay_runs.run_id")),
    _text("lineage_id"),
    Column("round_ordinal", BigInteger),
    _ms("cancel_requested_at"),
    _text("cancel_acknowledgement"),
    _text("waiting_reason"),
    _text("waiting_token"),
    _ms("waiting_wake_at"),
    Column("idempotency_key", Text, unique=True),
    Column("last_entry", BigInteger, nullable=False, server_default=text("0")),
    UniqueConstraint("lineage_id", "round_ordinal"),
)
Index(
    "belay_runs_ready",
    runs.c.workflow,
    runs.c.priority.desc(),
    runs.c.ready_at,
    postgresql_where=runs.c.ready_at.is_not(None),
    sqlite_where=runs.c.ready_at.is_not(None),
)
Index(
    "belay_runs_running",
    runs.c.run_id,
    postgresql_where=runs.c.status == "running",
    sqlite_where=runs.c.status == "running",
)
Index("belay_runs_parent", runs.c.parent_run_id)
Index("belay_runs_created", runs.c.created_at, runs.c.run_id)
Index(
    "belay_runs_waiting",
    runs.c.waiting_wake_at,
    runs.c.run_id,
    postgresql_where=runs.c.waiting_reason.is_not(None),
    sqlite_where=runs.c.waiting_reason.is_not(None),
)
Index(
    "belay_runs_waiting_reason",
    runs.c.waiting_reason,
    runs.c.waiting_wake_at,
    runs.c.run_id,
    postgresql_where=runs.c.waiting_reason.is_not(None),
    sqlite_where=runs.c.waiting_reason.is_not(None),
)
_waits_cancelled = runs.c.waiting_reason.is_not(None) & runs.c.cancel_requested_at.is_not(None)
Index(
    "belay_runs_waiting_cancelled",
    runs.c.cancel_requested_at,
    runs.c.run_id,
    postgresql_where=_waits_cancelled,
    sqlite_where=_waits_cancelled,
)

values = Table(
    "belay_run_values",
    metadata,
    _run_id(),
    _text("full_id"),
    _text("full_lineage_id"),
    _text("state", null=False),
    _text("input"),
    _text("result"),
    _text("error"),
    _text("waiting_request"),
    _text("trace"),
    _text("codec"),
    PrimaryKeyConstraint("run_id"),
)

attempts = Table(
    "belay_attempts",
    metadata,
    _run_id(),
    _text("step_key_digest", null=False),
    _text("full_key"),
    Column("attempt", BigInteger, nullable=False),
    _text("step"),
    _text("kind"),
    _text("state", null=False),
    Column("idempotent", Integer),
    _text("input_digest"),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("recorded", BigInteger),
    _ms("started_at", null=False),
    _ms("finished_at"),
    _ms("heartbeat_at"),
    _text("checkpoint"),
    _text("error"),
    _text("outcome"),
    _text("meta", null=False),
    _text("resolved_by"),
    _ms("resolved_at"),
    PrimaryKeyConstraint("run_id", "step_key_digest", "attempt"),
)

approvals = Table(
    "belay_approvals",
    metadata,
    _text("run_id", null=False),
    _text("step_key_digest", null=False),
    Column("approval_id", Text, nullable=False, unique=True),
    _text("gate", null=False),
    _text("subject", null=False),
    _text("subject_digest", null=False),
    _ms("asked_at", null=False),
    _ms("lapse_at"),
    _text("decision"),
    _text("decided_by"),
    _ms("decided_at"),
    _text("reason"),
    _text("edited"),
    _text("edited_digest"),
    _text("rule_id"),
    PrimaryKeyConstraint("run_id", "step_key_digest"),
)
Index(
    "belay_approvals_open",
    approvals.c.asked_at,
    approvals.c.approval_id,
    postgresql_where=approvals.c.decided_at.is_(None),
    sqlite_where=approvals.c.decided_at.is_(None),
)

journal = Table(
    "belay_journal",
    metadata,
    _text("run_id", null=False),
    Column("entry", BigInteger, nullable=False),
    _ms("at", null=False),
    _text("kind", null=False),
    _text("facts", null=False),
)

store = Table(
    "belay_store",
    metadata,
    _text("source", null=False),
    _ms("interval_ms", null=False),
    _ms("stale_after_ms", null=False),
    _ms("skew_ms", null=False),
)

migrations = Table(
    "belay_migrations",
    metadata,
    Column("migration_id", BigInteger, primary_key=True, autoincrement=False),
    _text("name", null=False),
    _text("checksum", null=False),
    _ms("applied_at", null=False),
)
