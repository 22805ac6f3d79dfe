"""The ownership of one run as rules over values: how it is acquired, what a fence lets through, what a re-read tells.

These are the decisions of the stores (kernel 3, 5 and 7; spec 5 and 6) without a database, a clock or a network.
``world`` puts owners, lost replies and late statements around them and explores every order of events;
``reference`` predicts with them what the real stores answer. Each rule can be left out (``Rules``), to see what
it is there for.
"""

from collections.abc import Hashable
from typing import Literal, NamedTuple, TypeAlias

Nonce: TypeAlias = Hashable
"""Compared for equality only."""

PENDING, RUNNING, SUSPENDED, OVER = "pending", "running", "suspended", "over"


class Rules(NamedTuple):
    """What the protocol insists on; the defaults are the protocol."""

    fence_nonce: bool = True
    """Owned statements compare the nonce of the owner."""
    fence_epoch: bool = True
    """Owned statements compare the epoch."""
    fence_sequence: bool = True
    """Owned writes compare the write sequence; renewals do not."""
    fence_status: bool = True
    """Owned statements find only running runs."""
    fence_renewals: bool = True
    """Renewals are fenced at all."""
    fence_locks: bool = True
    """Fence and write are one: nothing commits between the look and the write."""
    acquire_swaps: bool = True
    """An acquisition judges the row it changes, not one it read before."""
    nonce_per: Literal["acquisition", "process"] = "acquisition"
    epoch_counts: bool = True
    """Each acquisition raises the epoch, also one that takes the run from somebody."""
    keeps_epoch: bool = True
    """A run that is let go keeps its epoch."""
    keeps_last: bool = True
    """A run that is let go keeps the nonce of its last owner."""
    clears_owner: bool = True
    """A run that is let go names no owner."""
    ending_counts: bool = True
    """Park and settle raise the write sequence, as every owned write does."""
    evidence_needs_silence: bool = True
    """Evidence that an owner was silent does not make up for a heartbeat since."""
    evidence_names_nonce: bool = True
    """Proof of death is about one owner, not about whoever has its process id."""
    silence_suffices: bool = True
    """A silent owner may be replaced though nothing proves that it is gone."""
    resolves: Literal["reading", "assuming it arrived", "sending again", "reading once"] = "reading"
    """What follows a command whose reply was lost."""
    clears_up: bool = True
    """After a command that was given up before its end was known, a write that only counts goes first."""


class Evidence(NamedTuple):
    """What a taker has found out about an owner, at some earlier moment."""

    kind: Literal["silent", "dead"]
    nonce: Nonce
    pid: int


class Run(NamedTuple):
    """The row of a run, as far as ownership goes."""

    status: str = PENDING
    owner: Nonce | None = None
    epoch: int = 0
    seq: int = 0
    last: Nonce | None = None
    """The nonce of the last owner there was."""
    heard: bool = False
    """Whether the heartbeat is fresh, by whatever clock decides."""
    pid: int = 0
    """The process of the owner."""


class Lease(NamedTuple):
    """What an owner knows of its ownership."""

    nonce: Nonce
    epoch: int
    seq: int


def may_take(rules: Rules, run: Run, evidence: Evidence | None) -> bool:
    """Whether an acquisition that meets the run like this gets it."""
    if run.status in (PENDING, SUSPENDED):
        return True
    if run.status == OVER:
        return False
    if not run.heard and rules.silence_suffices:
        return True
    if evidence is None:
        return False
    if evidence.kind == "dead":
        return evidence.nonce == run.owner if rules.evidence_names_nonce else evidence.pid == run.pid
    return evidence.nonce == run.owner and not rules.evidence_needs_silence


def taken(rules: Rules, run: Run, nonce: Nonce, pid: int) -> Run:
    """The run once it is acquired."""
    epoch = run.epoch + 1 if rules.epoch_counts or run.status != RUNNING else run.epoch
    return Run(RUNNING, nonce, epoch, run.seq, nonce, heard=True, pid=pid)


def holds(rules: Rules, run: Run, lease: Lease) -> bool:
    """Whether a renewal under this lease is let through."""
    if not rules.fence_renewals:
        return run.status == RUNNING
    return (
        (run.status == RUNNING or not rules.fence_status)
        and (run.owner == lease.nonce or not rules.fence_nonce)
        and (run.epoch == lease.epoch or not rules.fence_epoch)
    )


def lets_write(rules: Rules, run: Run, lease: Lease) -> bool:
    """Whether an owned write under this lease is let through."""
    fenced = holds(rules._replace(fence_renewals=True), run, lease)
    return fenced and (run.seq == lease.seq or not rules.fence_sequence)


def written(rules: Rules, run: Run, kind: str) -> Run:
    """The run after an owned write: ``park`` and ``settle`` let it go, ``record`` and ``hold`` keep it."""
    if kind in ("record", "hold"):
        return run._replace(seq=run.seq + 1, heard=True)
    return run._replace(
        status=SUSPENDED if kind == "park" else OVER,
        owner=None if rules.clears_owner else run.owner,
        heard=False,
        seq=run.seq + 1 if rules.ending_counts else run.seq,
        last=run.last if rules.keeps_last else None,
        epoch=run.epoch if rules.keeps_epoch else 0,
    )


def renewed(run: Run) -> Run:
    """The run after a renewal."""
    return run._replace(heard=True)


def resolved(run: Run, lease: Lease) -> Literal["arrived", "again", "lost"]:
    """What a re-read tells of an owned write that was sent under this lease and not answered."""
    if (run.last, run.epoch, run.seq) == (lease.nonce, lease.epoch, lease.seq + 1):
        return "arrived"
    if run.status == RUNNING and (run.owner, run.epoch) == (lease.nonce, lease.epoch):
        return "again"
    return "lost"
