"""What a process that listens knows of others: moments of a clock go in, and nothing else is needed."""

import pytest

from belay_drivers.postgres.peer_presence import ANSWER_TIMEOUT, PEER_TIMEOUT, PeerPresence, PeerState


@pytest.fixture
def peers():
    return PeerPresence()


def test_nothing_is_known_until_somebody_is_asked(peers):
    assert peers.state(1e9) is PeerState.UNKNOWN
    assert not peers.alone


def test_who_has_asked_is_alone_only_after_the_time_for_answers(peers):
    peers.question_sent(7.0)
    assert peers.state(7.0 + ANSWER_TIMEOUT - 0.001) is PeerState.ASKED
    assert not peers.alone
    assert peers.state(7.0 + ANSWER_TIMEOUT + 0.001) is PeerState.ALONE
    assert peers.alone
    assert peers.state(1e9) is PeerState.ALONE


@pytest.mark.parametrize("before", ["nothing", "asked", "alone", "among others"])
def test_who_hears_somebody_is_among_others(peers, before):
    if before in ("asked", "alone"):
        peers.question_sent(0.0)
        peers.state(1.0 if before == "alone" else 0.0)
    elif before == "among others":
        peers.peer_heard(0.0)
    peers.peer_heard(1.0)
    assert not peers.alone
    assert peers.state(0.999 + PEER_TIMEOUT) is PeerState.HAS_PEERS


def test_after_long_silence_nothing_is_known_and_that_is_not_to_be_alone(peers):
    peers.peer_heard(1.0)
    assert peers.state(1.001 + PEER_TIMEOUT) is PeerState.UNKNOWN
    assert not peers.alone


def test_an_answer_that_comes_late_ends_being_alone(peers):
    peers.question_sent(0.0)
    assert peers.state(5.0) is PeerState.ALONE
    peers.peer_heard(6.0)
    assert peers.state(6.0) is PeerState.HAS_PEERS
