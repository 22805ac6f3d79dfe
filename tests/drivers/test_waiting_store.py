"""What runs wait for, where somebody damaged it; what the waiting store promises is in the conformance suite."""

import pytest

from belay_core.errors import WaitingStoreError
from belay_core.ids import RunId
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.waiting import Wait

A = OwnerId("host-a", 101, "owner-a")
RUN = RunId("run")


@pytest.fixture
def stores(kit):
    return kit.stores


async def test_a_damaged_request_is_reported_without_its_text(stores, raw):
    await stores.runs.create(RUN, "{}")
    await stores.runs.claim_and_own(RUN, RunSnapshot(RunStatus.PENDING), A, int(stores.clock.now()))
    await stores.waiting.park(RUN, Wait("human", request=1), A)
    await raw(stores, "UPDATE belay_run_values SET waiting_request = '{secret'")
    for call in (stores.waiting.waiting(RUN), stores.waiting.waiting_runs(), stores.waiting.wake(RUN)):
        with pytest.raises(WaitingStoreError, match=r"decode_failed.*belay_run_values row") as reported:
            await call
        assert "secret" not in str(reported.value)
