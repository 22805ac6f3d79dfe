"""The protocol with one rule left out at a time: what each rule is there for, and how its absence shows."""

from typing import NamedTuple

from tests.model.exploring import UNFINISHED
from tests.model.protocol import Rules
from tests.model.world import Setting

PROTOCOL = Rules()

THREE_WORKERS = Setting(PROTOCOL)
"""Everything but failovers: three workers in two processes, and one statement that may arrive late."""
FAILOVER = Setting(PROTOCOL, (1, 1), late=0, losses=False, deaths=False, failover=True, spread=2)
"""The database may forget its last transactions, up to two of a kind; two workers of one process."""
SOUND = {"three workers": THREE_WORKERS, "failover": FAILOVER}
"""The worlds in which the whole protocol has to hold."""
TWO_LATE = Setting(PROTOCOL, (1, 2), late=2)
"""Two statements may arrive late; five times as many states."""

QUIET = Setting(PROTOCOL, (1, 2), late=0, losses=False)
"""Nothing gets lost and nothing is late."""
FORMER = "a statement of a former owner was accepted"
LATE = "a write of the owner arrived over what the owner wrote after it"
REPLACED = "an owner was replaced that was heard of and is not gone"
BACK = "the epoch went back"
SAME = "two acquisitions had the same epoch"
NOT_DONE = "a command was taken for done that was not"
DONE = "a command was taken for refused that was done"
LET_GO = "a statement was accepted on a run that had been let go"


class Fault(NamedTuple):
    """A protocol without one of its rules, a world that shows it, and the promise that breaks there."""

    rules: Rules
    breaks: str
    world: Setting = THREE_WORKERS

    @property
    def setting(self) -> Setting:
        """The world with this protocol."""
        return self.world._replace(rules=self.rules)


PLANTED = {
    "the fence compares no nonce": Fault(PROTOCOL._replace(fence_nonce=False), FORMER, FAILOVER),
    "the fence compares no epoch": Fault(PROTOCOL._replace(fence_epoch=False), FORMER),
    "the fence compares no write sequence": Fault(PROTOCOL._replace(fence_sequence=False), LATE),
    "an owner is left on the row, and the status is not compared": Fault(
        PROTOCOL._replace(fence_status=False, clears_owner=False), LET_GO
    ),
    "renewals are not fenced": Fault(PROTOCOL._replace(fence_renewals=False), FORMER),
    "the fence is read before the write": Fault(PROTOCOL._replace(fence_locks=False), FORMER),
    "an acquisition does not look at the row it changes": Fault(PROTOCOL._replace(acquire_swaps=False), REPLACED),
    "a process has one nonce": Fault(PROTOCOL._replace(nonce_per="process"), FORMER, FAILOVER),
    "a takeover does not raise the epoch": Fault(PROTOCOL._replace(epoch_counts=False), SAME),
    "a run that is let go loses its epoch": Fault(PROTOCOL._replace(keeps_epoch=False), BACK),
    "a run that is let go forgets its last owner": Fault(PROTOCOL._replace(keeps_last=False), DONE),
    "letting go does not raise the write sequence": Fault(PROTOCOL._replace(ending_counts=False), DONE),
    "evidence of silence makes up for a heartbeat": Fault(PROTOCOL._replace(evidence_needs_silence=False), REPLACED),
    "proof of death names a process id": Fault(PROTOCOL._replace(evidence_names_nonce=False), REPLACED),
    "only proof of death takes a run over": Fault(PROTOCOL._replace(silence_suffices=False), UNFINISHED, QUIET),
    "an unanswered command is taken for done": Fault(PROTOCOL._replace(resolves="assuming it arrived"), NOT_DONE),
    "an unanswered command is sent again unread": Fault(PROTOCOL._replace(resolves="sending again"), DONE),
    "a command sent again and refused is taken for refused": Fault(PROTOCOL._replace(resolves="reading once"), DONE),
    "a command is given up and the next one sent": Fault(PROTOCOL._replace(clears_up=False), NOT_DONE),
}
"""Each of them has a counterexample."""

SPARE = {
    "no nonce in the fence of a database that forgets nothing": PROTOCOL._replace(fence_nonce=False),
    "no status in a fence where no owner is left": PROTOCOL._replace(fence_status=False),
    "an owner left where the fence compares the status": PROTOCOL._replace(clears_owner=False),
}
"""Rules that others make up for, in a database that forgets nothing: none of them has a counterexample."""
SPARE_WORLD = Setting(PROTOCOL, (1, 1))
