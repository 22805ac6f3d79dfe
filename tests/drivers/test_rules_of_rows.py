"""The rules of rows hold for whoever writes to the database, past every check of the stores."""

import pytest
from sqlalchemy import text

from belay_core.errors import DatabaseError

RUNS = [
    "status = 'lost'",
    "status = 'pending'",
    "owner_host_id = NULL",
    "owner_pid = NULL",
    "owner_nonce = NULL",
    "owner_host_id = ''",
    "owner_nonce = ''",
    "owner_pid = -1",
    "heartbeat_at = NULL",
    "heartbeat_at = -1",
    "heartbeat_at = 9007199254740992",
    "claim_host_id = 'h'",
    "claim_host_id = 'h', claim_pid = 1, claim_nonce = 'n'",
    "claim_host_id = '', claim_pid = 1, claim_nonce = 'n', claimed_at = 1",
    "claim_host_id = 'h', claim_pid = 1, claim_nonce = '', claimed_at = 1",
    "claim_host_id = 'h', claim_pid = -1, claim_nonce = 'n', claimed_at = 1",
    "claim_host_id = 'h', claim_pid = 1, claim_nonce = 'n', claimed_at = -1",
    "claim_host_id = 'h', claim_pid = 1, claim_nonce = 'n', claimed_at = 9007199254740992",
    "claim_pid = 1",
    "claim_nonce = 'n'",
    "claimed_at = 1",
    "waiting_reason = 'r', waiting_wake_at = 9007199254740992",
    "waiting_token = 't'",
    "waiting_wake_at = 1",
    "waiting_reason = ''",
    "waiting_reason = 'r', waiting_token = ''",
    "waiting_reason = 'r', waiting_wake_at = -1",
    "lineage_id = ''",
    "round_ordinal = -1",
    *(
        f"{name} = {value}"
        for name in ("ready_at", "created_at", "started_at", "finished_at", "cancel_requested_at", "round_ordinal")
        for value in ("-1", "9007199254740992")
    ),
]
SOUND = [
    "heartbeat_at = 9007199254740991, created_at = 0, ready_at = 9007199254740991, round_ordinal = 0",
    "claim_host_id = 'h', claim_pid = 0, claim_nonce = 'n', claimed_at = 0",
    "waiting_reason = 'r', waiting_token = 't', waiting_wake_at = 0",
    "status = 'suspended', owner_host_id = NULL, owner_pid = NULL, owner_nonce = NULL, heartbeat_at = NULL",
]
ATTEMPTS = [
    "state = ''",
    "step_key_digest = ''",
    "idempotent = 2",
    "idempotent = -1",
    *(
        f"{name} = {value}"
        for name in ("attempt", "started_at", "finished_at", "heartbeat_at")
        for value in ("-1", "9007199254740992")
    ),
]


async def running(kit):
    await kit.record(await kit.own(), kit.step())


async def stored(kit, table):
    rows = await kit.stores.runs._database.read(lambda tx: tx.execute(text(f"SELECT * FROM {table}")).mappings().all())  # noqa: S608
    return [dict(row) for row in rows]


@pytest.mark.parametrize(
    ("table", "change"),
    [*(("belay_runs", change) for change in RUNS), *(("belay_attempts", change) for change in ATTEMPTS)],
)
async def test_a_row_that_breaks_a_rule_is_refused(kit, raw, table, change):
    await running(kit)
    before = await stored(kit, table)
    with pytest.raises(DatabaseError) as refused:
        await raw(kit.stores, f"UPDATE {table} SET {change}")  # noqa: S608  (constants of this file)
    assert refused.value.code == "constraint"
    assert await stored(kit, table) == before


@pytest.mark.parametrize("change", SOUND)
async def test_a_run_that_keeps_the_rules_is_taken(kit, raw, change):
    await running(kit)
    await raw(kit.stores, f"UPDATE belay_runs SET {change}")  # noqa: S608  (a constant of this file)


async def test_a_new_run_that_breaks_a_rule_is_refused(kit, raw):
    with pytest.raises(DatabaseError) as refused:
        await raw(kit.stores, "INSERT INTO belay_runs (run_id, status, created_at) VALUES ('', 'pending', 0)")
    assert refused.value.code == "constraint"


async def test_what_a_record_writes_to_has_one_check_a_table(belay_postgres):
    """The server reads each anew for every statement, which a lone record feels."""
    query = "SELECT conrelid::regclass::text FROM pg_constraint WHERE contype = 'c' AND conrelid::regclass::text = ANY "
    async with belay_postgres as stores:
        found = await stores.runs._database.read(
            lambda tx: tx.exec_driver_sql(query + "(ARRAY['belay_runs', 'belay_attempts']) ORDER BY 1").scalars().all()
        )
    assert found == ["belay_attempts", "belay_runs"]
