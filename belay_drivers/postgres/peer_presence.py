"""Whether other processes listen: without peers no notification need be sent."""

from enum import Enum, auto
from typing import Final

ANSWER_TIMEOUT: Final = 0.2
"""Seconds after a question within which peers answer; a later answer is handled when it arrives."""
PEER_TIMEOUT: Final = 30.0
"""Seconds after its last notification for which a peer is assumed to listen."""


class PeerState(Enum):
    """What is known of peers."""

    UNKNOWN = auto()
    ASKED = auto()
    ALONE = auto()
    HAS_PEERS = auto()


class PeerPresence:
    """The knowledge of one connection about peers, while it listens. Times are seconds of one clock.

    ::

        UNKNOWN    --question sent-->                       ASKED
        ASKED      --ANSWER_TIMEOUT seconds of silence-->   ALONE
        HAS_PEERS  --PEER_TIMEOUT seconds of silence-->     UNKNOWN
        any        --notification of a peer-->              HAS_PEERS

    Each process listens before it asks, and each listener answers: of two processes, at least the first one receives
    the other's question. So a process that is alone learns of each new one.
    """

    def __init__(self) -> None:
        self._state = PeerState.UNKNOWN
        self._since = 0.0
        self.alone = False
        """Whether no peer listens, as far as is known."""

    def state(self, now: float) -> PeerState:
        """The state at ``now``, after the silence until then."""
        silence = now - self._since
        if self._state is PeerState.ASKED and silence >= ANSWER_TIMEOUT:
            self._set_state(PeerState.ALONE, now)
        elif self._state is PeerState.HAS_PEERS and silence >= PEER_TIMEOUT:
            self._set_state(PeerState.UNKNOWN, now)
        return self._state

    def question_sent(self, now: float) -> None:
        """Note that the question was sent."""
        self._set_state(PeerState.ASKED, now)

    def peer_heard(self, now: float) -> None:
        """Note a notification of a peer."""
        self._set_state(PeerState.HAS_PEERS, now)

    def _set_state(self, state: PeerState, now: float) -> None:
        self._state, self._since, self.alone = state, now, state is PeerState.ALONE
