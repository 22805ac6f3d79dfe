"""Columns that travel as one text: whatever an id or a name holds, what was given is what is stored."""

import asyncio
import random
from typing import Any

import pytest

from belay_core.errors import StoreError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.owner import Lease, OwnerId
from belay_core.records.run import RunStatus
from belay_core.stores.attempts import Recorded
from belay_core.stores.runs import RunParked, Settled, Started
from belay_drivers.postgres.batch import Flush
from belay_drivers.postgres.columns import NUMBER, TEXT, arrays_given, joined, texts_given
from belay_drivers.sql.statements.fences import Fence
from belay_drivers.sql.statements.write_ops import RecordOp

MARKS = ("\x1f", "\x1e", "a\x1fb", "\x1e\x1f", "\x1f\x1e", "\x1e\x1e", "\x1f\x1f", "a\x1e")
"""Texts with what stands between texts, and with what stands for none."""
ODD = (
    "NULL",
    "null",
    " ",
    ",",
    "{}",
    "{NULL}",
    '"',
    "\\",
    "\\x1f",
    "E'\\x1e'",
    "'",
    "%s $1",
    "\t\r\n",
    "Zoë\U0001f9d7",
)


async def together(*calls: Any, **how: Any) -> list[Any]:
    return [*await asyncio.gather(*calls, **how)]


@pytest.mark.parametrize("text", MARKS + ODD, ids=ascii)
async def test_ids_and_names_are_stored_as_they_are_beside_others(kit, text):
    ids = ["run-1", text, "run-2"]
    more = {"workflow": f"w{text}", "version": text, "trace": text}
    started = await together(*(kit.start(each, idempotency_key=f"{each}{text}", **more) for each in ids))
    assert started == [Started(RunId(each)) for each in ids]
    leases = [acquired.lease for acquired in await kit.acquire(f"w{text}", owner=OwnerId(text, 7, text))]
    assert sorted(lease.run_id for lease in leases) == sorted(ids)
    steps = [kit.step(f"{text}#{number}", step=text, input_digest=None) for number in (1, 2)]
    assert await together(*(kit.record(lease, steps[0]) for lease in leases)) == [Recorded(None, None)] * 3
    several = [kit.record(leases[0], steps[1], kit.step("other#1")), kit.record(leases[1], steps[1], kit.step("c#1"))]
    assert await together(*several) == [Recorded(None, None)] * 2
    ends = [
        kit.park(leases[0], text, token=text),
        kit.park(leases[1], text, token=text),
        kit.settle(leases[2], RunStatus.FAILED, error='"no"'),
    ]
    assert await together(*ends) == [RunParked(), RunParked(), Settled(kit.now)]
    for lease in leases:
        run, stored = await kit.run(lease.run_id), await kit.attempts(lease.run_id)
        assert (run.workflow, run.version, run.trace, run.idempotency_key) == (
            f"w{text}",
            text,
            text,
            f"{lease.run_id}{text}",
        )
        found = stored[f"{text}#1"]
        assert (found.step, found.input_digest, found.outcome, found.error) == (text, None, '{"n":1}', None)
    parked = await kit.run(leases[0].run_id)
    assert (parked.waiting.reason, parked.waiting.token) == (text, text)


def recordings(kit: Any, *keys: str) -> list[RecordOp]:
    leases = [Lease(RunId(key), OwnerId("host", 7, "nonce"), 1) for key in keys]
    return [RecordOp(Fence(lease, 0, 5), (kit.step(),)) for lease in leases]


async def test_what_holds_no_mark_goes_as_texts_and_what_does_as_arrays(kit):
    assert "string_to_array" in Flush(recordings(kit, "run-1", "run-2")).sql
    for text in MARKS:
        flush = Flush(recordings(kit, "run-1", text))
        assert "string_to_array" not in flush.sql
        assert flush.given[0] == ["run-1", text]


@pytest.mark.parametrize("column", [["a\x1fb"], ["\x1f", None], ["\x1e"], ["a", "\x1e", None], [""]], ids=ascii)
def test_a_text_that_would_be_taken_for_something_else_is_not_joined(column):
    assert joined([TEXT], [column]) is None


def test_a_number_is_a_whole_number():
    assert joined([NUMBER], [[1, None, -3]]) == ["{1,NULL,-3}"]
    for intruder in ("1,2", 1.5):
        assert joined([NUMBER], [[intruder]]) is None


async def test_a_value_of_another_kind_harms_no_neighbour(kit):
    leases = [await kit.own(each) for each in ("run-1", "run-2")]
    records = kit.record(leases[0], kit.step(started_at_ms="x")), kit.record(leases[1], kit.step())
    broken, sound = await together(*records, return_exceptions=True)
    assert sound == Recorded(None, None)
    assert isinstance(broken, StoreError)


async def test_the_server_reads_texts_as_it_reads_arrays(belay_postgres):
    """Random columns of texts in which marks are frequent: they are joined rightly, or not at all."""
    rng = random.Random(17)  # noqa: S311  (the same each time)
    kinds = [TEXT, NUMBER, TEXT]
    both = [f"SELECT * FROM unnest({given(kinds, 1)}) WITH ORDINALITY" for given in (arrays_given, texts_given)]  # noqa: S608
    seen = {True: 0, False: 0}
    async with belay_postgres as stores:
        ask = stores.runs._parts.group_commit._channel.ask
        for _ in range(300):
            alphabet = rng.choice(("ab", "ab,{}\"\\'", "a\x1f", "a\x1e", "é漢\U0001f9d7"))
            rows = rng.randrange(1, 5)
            texts = [
                [rng.choice((None, "".join(rng.choices(alphabet, k=rng.randrange(3))))) for _ in range(rows)]
                for _ in range(2)
            ]
            columns: list[list[Any]] = [
                texts[0],
                [rng.choice((None, 0, -7, 2**63 - 1)) for _ in range(rows)],
                texts[1],
            ]
            given = joined(kinds, columns)
            seen[given is None] += 1
            if given is not None:
                rows_of_arrays = await ask(both[0], tuple(columns))
                assert [tuple(row) for row in await ask(both[1], tuple(given))] == [*map(tuple, rows_of_arrays)]
    assert min(seen.values()) > 30


async def test_a_wait_with_nothing_in_most_columns_is_stored(kit):
    """Columns of nothing but None, in a flush of one."""
    lease = await kit.own()
    assert await kit.stores.attempts.sleep(commands.Sleep(lease, kit.gate("sleep#1", started_at_ms=1)))
    assert (await kit.attempts())["sleep#1"].outcome is None
    assert await kit.park(lease) == RunParked()
    assert (await kit.run()).waiting.token is None
