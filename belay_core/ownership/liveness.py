"""Liveness of owners, and evidence that one is dead (specs, run store 5.1 and 8.1 to 8.3).

A *check* returns whether an owner still works, and True refuses a takeover. A *probe* gathers the evidence that
``steal``, ``recover_claim`` and ``claim_and_own`` ask for. Stores gather none themselves, and no evidence makes a
fresh heartbeat stale.
"""

from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from belay_core import limits
from belay_core.clock import Millis
from belay_core.ownership.identity import ProcessIdentity, is_gone, may_exist
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.stores.run_contract import evidence_matches

_MILLISECOND: Final = timedelta(milliseconds=1)
_STALE_AFTER: Final = limits.HEARTBEAT_STALE_AFTER * _MILLISECOND


@dataclass(frozen=True, slots=True)
class LivenessContext:
    """Who asks about an owner, when, and the owner's last heartbeat (None if there is none)."""

    claimant: OwnerId
    heartbeat_at_ms: Millis | None
    now_ms: Millis


class LivenessCheck(Protocol):
    """Returns whether an owner still works; True refuses the takeover."""

    @abstractmethod
    def __call__(self, expected_owner: OwnerId, ctx: LivenessContext, /) -> bool:
        """Whether this owner may not be taken over."""


class LivenessProbe(Protocol):
    """Gathers evidence that an owner is dead."""

    @abstractmethod
    def __call__(self, expected_owner: OwnerId, claimant: OwnerId, checked_at_ms: Millis, /) -> LivenessEvidence | None:
        """The evidence, bound to this owner and this time; None without proof."""


def evidence_matches_owner(
    expected_owner: OwnerId, observer: OwnerId, now_ms: Millis, evidence: LivenessEvidence
) -> bool:
    """Whether evidence is about exactly this owner and time, and of a kind this observer can have (5.1)."""
    return evidence_matches(expected_owner, observer, now_ms, evidence)


def same_host_incarnation(expected_owner: OwnerId, claimant: OwnerId) -> bool:
    """Whether both are on the same host (8.1)."""
    return expected_owner.host_id == claimant.host_id


def lease_liveness(stale_after: timedelta = _STALE_AFTER) -> LivenessCheck:
    """A check by the heartbeat alone: up to and at this age its owner works (8.2)."""
    stale_after_ms = stale_after // _MILLISECOND

    def check(_expected_owner: OwnerId, ctx: LivenessContext) -> bool:
        return ctx.heartbeat_at_ms is not None and ctx.heartbeat_at_ms >= ctx.now_ms - stale_after_ms

    return check


def same_host_pid_probe(expected_owner: OwnerId, ctx: LivenessContext) -> bool:
    """A check that asks the system for the owner's process id (8.3).

    An owner on another host never counts as working, or a dead host's runs would wait for ever: there the expired
    lease decides. An owner with the caller's own process id always does, so an engine that is recreated in one
    process needs ``lease_liveness``. A reused id delays the takeover, except with ``local_probe``. On Windows every
    owner of this host counts as working.
    """
    return same_host_incarnation(expected_owner, ctx.claimant) and may_exist(expected_owner.pid)


def local_probe(observer: ProcessIdentity) -> LivenessProbe:
    """A probe for owners on the observer's own host that were made by ``ProcessIdentity.owner``.

    It proves that the process has ended, also if its id was reused, and proves nothing in case of doubt.
    """

    def probe(expected_owner: OwnerId, claimant: OwnerId, checked_at_ms: Millis) -> LivenessEvidence | None:
        if claimant.host_id != observer.host_id or not is_gone(expected_owner, observer):
            return None
        return LivenessEvidence(expected_owner, checked_at_ms, "same-host-pid-dead")

    return probe
