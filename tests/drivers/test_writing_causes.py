"""What a database's failure is called, however deep it is wrapped: at most eight causes down."""

import sqlite3
from itertools import pairwise

import asyncpg
import pytest

from belay_core.errors import DatabaseError, RunStoreError
from belay_drivers.postgres.dialect import DIALECT as POSTGRES
from belay_drivers.sql.connection.error_translation import is_transient
from belay_drivers.sqlite.dialect import DIALECT as SQLITE

SECRET = "4711-is-a-secret"


def sqlite_error():
    error = sqlite3.IntegrityError(SECRET)
    error.sqlite_errorname = "SQLITE_CONSTRAINT_UNIQUE"
    return error


def postgres_error():
    return asyncpg.UniqueViolationError(SECRET)


KINDS = pytest.mark.parametrize(
    ("dialect", "make"), [(SQLITE, sqlite_error), (POSTGRES, postgres_error)], ids=["sqlite", "postgres"]
)


def wrapped(error, times):
    for _ in range(times):
        around = RuntimeError("around")
        around.__cause__ = error
        error = around
    return error


@KINDS
@pytest.mark.parametrize(("times", "found"), [(0, True), (7, True), (8, False)])
def test_a_constraint_is_found_among_eight_and_no_deeper(dialect, make, times, found):
    failure = dialect.explain(wrapped(make(), times))
    assert (failure is not None and failure.code == "constraint") is found


@KINDS
def test_a_chain_that_bites_its_tail_ends(dialect, make):
    ring = [RuntimeError(str(place)) for place in range(3)]
    for one, other in pairwise([*ring, ring[0]]):
        one.__cause__ = other
    assert dialect.explain(ring[0]) is None
    ring[2].__cause__ = make()
    failure = dialect.explain(ring[0])
    assert failure is not None
    assert failure.code == "constraint"


@KINDS
def test_nothing_of_its_text_is_kept(dialect, make):
    failure = dialect.explain(wrapped(make(), 3))
    assert SECRET not in repr(failure)
    assert SECRET not in str(failure.error())


@pytest.mark.parametrize("transient", [True, False])
def test_the_first_failure_of_a_database_decides_whether_to_try_again(transient):
    inner = RunStoreError("x", "create", "no", {"cause": DatabaseError("busy", transient=transient)})
    inner.__cause__ = DatabaseError("busy", transient=not transient)
    assert is_transient(wrapped(inner, 20)) is transient


def test_what_was_being_dealt_with_counts_unless_it_was_put_aside():
    transient = DatabaseError("busy", transient=True)
    meanwhile, aside = RuntimeError(), RuntimeError()
    meanwhile.__context__ = aside.__context__ = transient
    aside.__suppress_context__ = True
    assert (is_transient(meanwhile), is_transient(aside)) == (True, False)
