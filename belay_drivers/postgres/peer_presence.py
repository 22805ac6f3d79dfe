"""Whether anybody else listens. It is found out by asking, as whoever is alone need not tell what happens."""

from enum import Enum, auto
from typing import Final

ANSWERED: Final = 0.2
"""Seconds after a question in which somebody who is there says so; one who is slower is made up for when heard."""
BELIEVED: Final = 30.0
"""Seconds for which somebody who was heard is taken to be there still."""


class PeerState(Enum):
    """What is known of others."""

    NOTHING = auto()
    ASKED = auto()
    ALONE = auto()
    AMONG_OTHERS = auto()


class PeerPresence:
    """What one connection knows of others, from when it listens until it is lost. Moments are seconds of one clock.

    ::

        NOTHING       --asked-->                         ASKED
        ASKED         --ANSWERED seconds of silence-->   ALONE
        AMONG_OTHERS  --BELIEVED seconds of silence-->   NOTHING
        any           --heard-->                         AMONG_OTHERS

    Everybody listens before he asks, and whoever listens answers: of two, at least the one that was there first hears
    the other. So one who is alone is told of everybody who comes.
    """

    def __init__(self) -> None:
        self._known = PeerState.NOTHING
        self._since = 0.0
        self.alone = False
        """Whether there is nobody to tell, as far as was found."""

    def known(self, now: float) -> PeerState:
        """What is known by now, after the silence there was."""
        silence = now - self._since
        if self._known is PeerState.ASKED and silence >= ANSWERED:
            self._become(PeerState.ALONE, now)
        elif self._known is PeerState.AMONG_OTHERS and silence >= BELIEVED:
            self._become(PeerState.NOTHING, now)
        return self._known

    def ask(self, now: float) -> None:
        """Others have been asked."""
        self._become(PeerState.ASKED, now)

    def hear(self, now: float) -> None:
        """Somebody else has said something."""
        self._become(PeerState.AMONG_OTHERS, now)

    def _become(self, known: PeerState, now: float) -> None:
        self._known, self._since, self.alone = known, now, known is PeerState.ALONE
