"""The judge of the soak finds what is planted, and nothing where nothing is."""

from dataclasses import replace

import pytest

from belay_core import Client, RunStatus, Worker, open_stores
from tests.soak.flows import LEDGER, soak
from tests.soak.judge import Operator, judge, read_ledger
from tests.soak.people import decide_gates

SEEDS = range(12)


@pytest.fixture
async def soaked(tmp_path):
    """A ledger, the runs it tells of and what people did: all as it should be."""
    LEDGER.open(tmp_path / "ledger")
    operator = Operator()
    async with open_stores(f"sqlite:///{tmp_path / 'belay.db'}") as stores, Worker(stores, [soak], telemetry=False):
        client = Client(stores, approver="clerk", telemetry=False)
        runs = [await client.start(soak, seed) for seed in SEEDS]
        operator.started = {run.run_id: seed for run, seed in zip(runs, SEEDS, strict=True)}
        while None in [(await client.get(run)).result for run in runs]:
            await decide_gates(client, operator)
        histories = {run.run_id: await client.history(run) for run in runs}
    return read_ledger(tmp_path / "ledger"), histories, operator


def found(lines, histories, operator):
    return {kind: len(faults) for kind, faults in judge(lines, histories, operator).faults.items() if faults}


async def test_a_soak_without_a_fault_has_none(soaked):
    assert found(*soaked) == {}


async def test_each_planted_fault_is_found(soaked):
    lines, histories, operator = soaked
    paid = next(line for line in lines if line["kind"] == "begin" and line["step"] == "pay")
    told = next(line for line in lines if line["kind"] == "heard" and line["what"][0] == "answer")
    looked = next(
        line
        for line in lines
        if line["kind"] == "begin" and (line["run"], line["number"]) == (told["run"], told["what"][1])
    )
    run = paid["run"]

    def without(line):
        return [each for each in lines if each is not line]

    done = next(line for line in lines if line["kind"] == "done" and line["key"] == paid["key"])
    assert found([*lines, paid], histories, operator) == {"doubled": 1, "unknown": 1}
    assert "doubled" in found([*lines, looked], histories, operator)
    assert found(without(done), histories, operator) == {"unknown": 1}
    assert found(without(paid), histories, operator) == {"lost": 1}
    assert found(lines, {key: each for key, each in histories.items() if key != run}, operator) == {"lost": 1}
    ended = next(line for line in lines if line["kind"] == "heard" and line["run"] == run)
    other = [{**ended, "body": "another", "what": ["answer", -1]}, *lines]
    assert found(other, histories, operator) == {"disagree": 1}
    lasting = replace(histories[run], run=replace(histories[run].run, status=RunStatus.SUSPENDED))
    assert found(lines, {**histories, run: lasting}, operator) == {"stuck": 1}
    decided, answer = next(iter(operator.gates.items()))
    wrong = Operator(**{**vars(operator), "gates": {**operator.gates, decided: [answer[0], -1]}})
    assert found(lines, histories, wrong) == {"other_decision": 1}
