"""What a process that listens knows of others: moments of a clock go in, and nothing else is needed."""

import pytest

from belay_drivers.postgres.peer_presence import ANSWERED, BELIEVED, PeerPresence, PeerState


@pytest.fixture
def peers():
    return PeerPresence()


def test_nothing_is_known_until_somebody_is_asked(peers):
    assert peers.known(1e9) is PeerState.NOTHING
    assert not peers.alone


def test_who_has_asked_is_alone_only_after_the_time_for_answers(peers):
    peers.ask(7.0)
    assert peers.known(7.0 + ANSWERED - 0.001) is PeerState.ASKED
    assert not peers.alone
    assert peers.known(7.0 + ANSWERED + 0.001) is PeerState.ALONE
    assert peers.alone
    assert peers.known(1e9) is PeerState.ALONE


@pytest.mark.parametrize("before", ["nothing", "asked", "alone", "among others"])
def test_who_hears_somebody_is_among_others(peers, before):
    if before in ("asked", "alone"):
        peers.ask(0.0)
        peers.known(1.0 if before == "alone" else 0.0)
    elif before == "among others":
        peers.hear(0.0)
    peers.hear(1.0)
    assert not peers.alone
    assert peers.known(0.999 + BELIEVED) is PeerState.AMONG_OTHERS


def test_after_long_silence_nothing_is_known_and_that_is_not_to_be_alone(peers):
    peers.hear(1.0)
    assert peers.known(1.001 + BELIEVED) is PeerState.NOTHING
    assert not peers.alone


def test_an_answer_that_comes_late_ends_being_alone(peers):
    peers.ask(0.0)
    assert peers.known(5.0) is PeerState.ALONE
    peers.hear(6.0)
    assert peers.known(6.0) is PeerState.AMONG_OTHERS
