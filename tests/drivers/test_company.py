"""What a process that listens knows of others: moments of a clock go in, and nothing else is needed."""

import pytest

from belay_drivers.postgres.company import ANSWERED, BELIEVED, Company, Known


@pytest.fixture
def company():
    return Company()


def test_nothing_is_known_until_somebody_is_asked(company):
    assert company.known(1e9) is Known.NOTHING
    assert not company.alone


def test_who_has_asked_is_alone_only_after_the_time_for_answers(company):
    company.ask(7.0)
    assert company.known(7.0 + ANSWERED - 0.001) is Known.ASKED
    assert not company.alone
    assert company.known(7.0 + ANSWERED + 0.001) is Known.ALONE
    assert company.alone
    assert company.known(1e9) is Known.ALONE


@pytest.mark.parametrize("before", ["nothing", "asked", "alone", "among others"])
def test_who_hears_somebody_is_among_others(company, before):
    if before in ("asked", "alone"):
        company.ask(0.0)
        company.known(1.0 if before == "alone" else 0.0)
    elif before == "among others":
        company.hear(0.0)
    company.hear(1.0)
    assert not company.alone
    assert company.known(0.999 + BELIEVED) is Known.AMONG_OTHERS


def test_after_long_silence_nothing_is_known_and_that_is_not_to_be_alone(company):
    company.hear(1.0)
    assert company.known(1.001 + BELIEVED) is Known.NOTHING
    assert not company.alone


def test_an_answer_that_comes_late_ends_being_alone(company):
    company.ask(0.0)
    assert company.known(5.0) is Known.ALONE
    company.hear(6.0)
    assert company.known(6.0) is Known.AMONG_OTHERS
