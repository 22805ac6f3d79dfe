"""The proofs of ``make faults``, each with a few of the breaks: it still breaks, and nothing is wrong."""

import asyncio

import pytest

from belay_drivers.postgres import open_postgres
from belay_drivers.sqlite import open_sqlite
from belay_testing.postgres_server import PostgresServer
from tests.faults.cut_commits import Case, cut_commits
from tests.faults.killed_writers import killed_writers
from tests.faults.machine import losing
from tests.faults.migrators import migrators
from tests.faults.restarts import restarts, terminations
from tests.faults.takeovers import takeovers
from tests.faults.wire import Cut

HARD: list[tuple[str, Cut]] = [
    ("acquire_some_in_order", "late"),
    ("wake", "reply"),
    ("resolve_retry_of_the_run", "reply"),
    ("resolve_give_up_the_run", "both"),
    ("put_upserting", "reply"),
    ("create", "late"),
    ("abandon_claim", "late"),
    ("recover_claim", "late"),
]
"""Writes that were once answered wrongly, and their like."""


async def test_no_write_of_an_earlier_owner_is_kept_in_a_file(tmp_path):
    found = await takeovers(lambda clock: open_sqlite(tmp_path / "a.db", clock=clock), 12)
    assert found.stale == []
    assert found.takeovers == 12
    assert min(found.accepted, found.refused) > 12


async def test_no_write_of_an_earlier_owner_is_kept_on_postgresql(belay_postgres):
    found = await takeovers(lambda clock: open_postgres(belay_postgres.url, clock=clock), 24)
    assert found.stale == []
    assert found.takeovers == 24
    assert min(found.accepted, found.refused) > 24


async def test_a_fence_that_is_only_read_is_found_out(belay_postgres):
    found = await takeovers(lambda clock: open_postgres(belay_postgres.url, clock=clock), 12, fenced=False)
    assert found.stale


async def test_a_connection_cut_round_the_commit_changes_no_answer(
    belay_postgres, belay_postgres_server, belay_postgres_template, belay_postgres_names
):
    name = next(belay_postgres_names)
    calm = belay_postgres_server.create_database(name, template=belay_postgres_template)
    found = await cut_commits(belay_postgres.url, calm, [Case(scene, cut) for scene, cut in HARD])
    assert found.wrong == []
    assert (found.cuts, found.resolved) == (len(HARD), len(HARD))
    belay_postgres_server.drop_database(name)


async def test_who_acts_while_a_reply_is_lost_changes_no_answer(
    belay_postgres, belay_postgres_server, belay_postgres_template, belay_postgres_names
):
    name = next(belay_postgres_names)
    calm = belay_postgres_server.create_database(name, template=belay_postgres_template)
    found = await cut_commits(belay_postgres.url, calm, 9)
    assert found.wrong == []
    assert (found.cuts, found.resolved) == (9, 9)
    belay_postgres_server.drop_database(name)


def test_a_killed_writer_loses_nothing_it_has_acknowledged(tmp_path):
    found = killed_writers(tmp_path / "a.db", 6)
    assert (found.lost, found.torn, found.corrupt) == (0, [], [])
    assert (found.kills, found.resolved) == (6, found.ambiguous)
    assert found.acknowledged >= 6


@pytest.mark.parametrize("place", ["file", "postgres"])
def test_of_many_that_migrate_at_once_one_applies_and_all_succeed(
    place, tmp_path, belay_postgres_server, belay_postgres_names
):
    name = next(belay_postgres_names)
    url = f"sqlite:///{tmp_path}/new.db" if place == "file" else belay_postgres_server.create_database(name)
    found = migrators(url, 8)
    assert (found.errors, found.ok, found.appliers) == ([], 8, 1)
    if place == "postgres":
        belay_postgres_server.drop_database(name)


async def test_backends_ended_in_the_middle_of_a_statement_change_no_answer(belay_postgres):
    found = await terminations(belay_postgres.url, 15)
    assert (found.lost, found.wrong) == ([], [])
    assert found.broken >= 15
    assert found.resumed > 0


def test_a_server_stopped_at_once_loses_nothing_it_has_acknowledged():
    from belay_drivers.postgres import migrate_postgres

    with PostgresServer(durable=True) as server:
        url = server.create_database("stopped")
        asyncio.run(migrate_postgres(url))
        found = asyncio.run(restarts(server, url, 1))
    assert (found.lost, found.wrong) == ([], [])
    assert (found.broken, found.acknowledged > 0, found.resumed > 0) == (1, True, True)


def test_store_and_reference_agree_while_replies_are_lost_and_writes_given_up(belay_postgres):
    met = losing(belay_postgres.url, 2)
    assert {"start Started", "acquire gets"} <= met
