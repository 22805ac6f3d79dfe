"""Every number of the contract, each with its unit; no other module repeats one."""

from typing import Final

HEARTBEAT_INTERVAL: Final = 1_000
"""Milliseconds between two heartbeats of an owner."""

HEARTBEAT_STALE_AFTER: Final = 30_000
"""Milliseconds after which a heartbeat or claim is stale; exactly this old is still fresh."""

HEARTBEAT_SKEW_ALLOWANCE: Final = 10_000
"""Milliseconds by which a caller's lease reading may run ahead of the store's clock."""

HEARTBEAT_WRITE_TOLERANCE: Final = HEARTBEAT_STALE_AFTER - HEARTBEAT_SKEW_ALLOWANCE - HEARTBEAT_INTERVAL
"""Milliseconds that an owner may continue without a confirmed heartbeat."""

MAXIMUM_IDENTIFIER_LENGTH: Final = 1_024
"""UTF-16 code units of a durable identifier."""

MAXIMUM_NAME_BYTES: Final = 512
"""UTF-8 bytes of a name only the engine keeps: workflow, gate, idempotency key."""

MAXIMUM_KEY_BYTES: Final = 1_000
"""UTF-8 bytes up to which an identifier is stored as its own key; longer ones are stored hashed."""

MAXIMUM_JSON_DEPTH: Final = 128
"""Containers around the innermost value of a JSON document."""

MAXIMUM_JSON_NODES: Final = 100_000
"""Values of a JSON document, and separately its members."""

MAXIMUM_HELD_VALUES: Final = 1_000_000
"""Members of the containers in an argument or a result; a shared one counts each time."""

MAXIMUM_CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
"""Encoded bytes above which no configuration admits a checkpoint."""

DEFAULT_CHECKPOINT_BYTES: Final = 1024 * 1024
"""Encoded bytes a checkpoint may have unless configured."""

MAXIMUM_VALUE_BYTES: Final = 1024 * 1024
"""Encoded bytes of one input, result, subject or state the engine writes."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""

STATEMENT_TIMEOUT: Final = 5.0
"""Seconds after which a database statement is cancelled."""

TAKEOVERS_WITHOUT_PROGRESS: Final = 5
"""Owners of a run, one after another, that record nothing before it goes to review."""
