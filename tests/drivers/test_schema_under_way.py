"""The schema grows while stores are open: what is prepared on their connections goes on."""

from belay_core.records import commands
from belay_core.stores.attempts import Recorded

GROWN = ("belay_runs", "belay_run_values", "belay_attempts", "belay_approvals")


async def test_what_is_sent_directly_goes_on_when_columns_are_added(kit, raw):
    first = await kit.own("before")
    await kit.record(first, kit.step())
    await kit.ask(first, "boss#1", "ap-1")
    assert (await kit.history(first.run_id)).attempts
    await kit.stores.runs.find(first.run_id)
    for table in GROWN:
        await raw(kit.stores, f"ALTER TABLE {table} ADD COLUMN later TEXT")
    second = await kit.own("after")
    assert await kit.record(second, kit.step()) == Recorded(None, None)
    assert [each.step for each in (await kit.history(second.run_id)).attempts] == ["fetch"]
    assert (await kit.history(first.run_id)).approvals[0].approval_id == "ap-1"
    assert (await kit.stores.runs.find(second.run_id)).status == "running"
    [asked] = await kit.stores.approvals.list(commands.ListApprovals(run_id=first.run_id))
    assert asked.approval_id == "ap-1"
