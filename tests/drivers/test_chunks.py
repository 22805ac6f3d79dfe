"""Commands about many runs are answered for each."""

from dataclasses import replace

from belay_core.records import commands
from belay_core.stores.run_contract import FenceLost
from belay_core.stores.runs import Renewed


async def test_any_number_of_leases_is_renewed_and_each_answered_for_itself(kit):
    leases = [await kit.own(f"run-{number}") for number in range(5)]
    stranger = replace(leases[2], owner=replace(leases[2].owner, nonce="stranger"))
    older = replace(leases[3], epoch=0)
    kit.clock.advance(9)
    asked = (*leases[::-1], stranger, older, leases[0])
    answers = await kit.stores.runs.renew(commands.Renew(asked))
    assert list(answers) == [*[Renewed(None, None)] * 5, FenceLost(), FenceLost(), Renewed(None, None)]
    assert {(await kit.run(lease.run_id)).heartbeat_at_ms for lease in leases} == {kit.now}
