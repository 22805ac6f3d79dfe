"""What came of a demo: from the database how every run ended, and from the ledger what was posted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from belay_core.client.explanation import shown_state
from belay_core.demo import ledger
from belay_core.demo.booking import Task, path_of
from belay_core.demo.currencies import from_minor_units
from belay_core.demo.killing import Hit, Kill
from belay_core.demo.ledger import Audit, Posting
from belay_core.demo.money import shown
from belay_core.demo.workflow import ledger_key, read
from belay_core.engine.failures import read_failure
from belay_core.errors import ValueRefused
from belay_core.records.commands import RunHistory
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepKind, StepRecord, StepState

_STOPPED: Final = frozenset({"failed", "cancelled", "needs_review", "approval"})


@dataclass(frozen=True, slots=True)
class Ended:
    """One run as it stands at the end, and what the ledger has under its key."""

    task: Task
    history: RunHistory
    postings: tuple[Posting, ...]
    resumed_by: tuple[str, ...]

    @property
    def run_id(self) -> str:
        """The run."""
        return self.history.run.run_id

    @property
    def state(self) -> str:
        """Its status, or what it waits for."""
        return shown_state(self.history.run)

    @property
    def is_stopped(self) -> bool:
        """Whether it is visibly stopped, and not completed."""
        return self.state in _STOPPED

    @property
    def is_rejected(self) -> bool:
        """Whether an approver refused it."""
        return bool(self.history.approvals) and self.history.approvals[-1].decision == "rejected"

    @property
    def is_right(self) -> bool:
        """Whether the ledger has what it should: one posting of what was completed, never two, none of what was not.

        A run that stopped may have posted before it did.
        """
        if self.state == "completed":
            return len(self.postings) == (0 if self.is_rejected else 1)
        return len(self.postings) <= 1 and (not self.postings or self._began_to_post)

    @property
    def _began_to_post(self) -> bool:
        return any(each.step == "post" for each in self.history.attempts)

    @property
    def died_posting(self) -> bool:
        """Whether its worker was gone while it posted, and nobody has said yet whether that took place."""
        posts = [each for each in self.steps if each.step == "post"]
        return bool(posts) and posts[-1].state is StepState.ORPHANED and posts[-1].resolved_at_ms is None

    @property
    def amount(self) -> str:
        """What was posted, else what the document asks for, as it is booked."""
        if self.postings:
            entry = self.postings[0].entry
            return shown(from_minor_units(entry.amount_minor, entry.currency), entry.currency)
        outcome = next((each.outcome for each in self.steps if each.step == "read" and each.outcome), None)
        try:
            invoice = None if outcome is None else read.codec.decode(outcome)
        except ValueRefused:
            invoice = None
        return "-" if invoice is None else shown(invoice.signed_payable, invoice.currency)

    @property
    def decision(self) -> str:
        """What came of its gate."""
        if self.history.approvals:
            last = self.history.approvals[-1]
            edited = "" if last.edited is None else ", edited"
            return f"{last.decision} by {last.decided_by}{edited}" if last.decision else "none yet"
        gates = [each for each in self.history.attempts if each.kind is StepKind.GATE]
        return "not needed" if gates else "-"

    @property
    def steps(self) -> list[StepRecord]:
        """Every attempt of a step."""
        return [each for each in self.history.attempts if each.kind is StepKind.STEP]

    @property
    def error(self) -> str:
        """Why it failed."""
        return read_failure(self.history.run.error)[1]

    def row(self) -> tuple[str, ...]:
        """Its line of the table."""
        done = sum(1 for each in self.steps if each.state is StepState.SUCCEEDED)
        resumed = ", ".join(self.resumed_by) or "-"
        attempts = str(len(self.steps))
        return (self.run_id, self.task.name, self.amount, self.state, self.decision, str(done), attempts, resumed)


HEAD: Final = ("RUN", "DOCUMENT", "AMOUNT", "STATE", "DECISION", "STEPS", "ATTEMPTS", "RESUMED BY")


@dataclass(frozen=True, slots=True)
class Report:
    """All of it, in figures."""

    ended: tuple[Ended, ...]
    audit: Audit
    kills: tuple[Kill, ...]
    seconds: float

    @property
    def completed(self) -> int:
        """Runs that completed, with a posting or with a rejection."""
        return sum(1 for each in self.ended if each.history.run.status is RunStatus.COMPLETED)

    @property
    def stopped(self) -> int:
        """Runs that are visibly stopped."""
        return sum(1 for each in self.ended if each.is_stopped)

    @property
    def posted_twice(self) -> int:
        """Step keys that the ledger has more than once."""
        return len(self.audit.posted_twice)

    @property
    def hits(self) -> list[Hit]:
        """Every run that was in the hands of a worker that was killed, each time."""
        return [hit for kill in self.kills for hit in kill.hits]

    @property
    def resumed(self) -> int:
        """Runs that were taken over after a kill, and have completed or visibly stopped since."""
        at_rest = {each.run_id for each in self.ended if each.is_stopped or each.state == "completed"}
        return len({hit.run_id for hit in self.hits if hit.resumed_after is not None} & at_rest)

    @property
    def wrong(self) -> list[Ended]:
        """Runs of which the ledger does not have what it should."""
        return [each for each in self.ended if not each.is_right]

    @property
    def strays(self) -> int:
        """Postings of the ledger that belong to none of the runs."""
        return self.audit.postings - sum(len(each.postings) for each in self.ended)

    @property
    def is_good(self) -> bool:
        """Whether every document was posted exactly once or is visibly stopped, by the ledger's own word."""
        accounted = self.completed + self.stopped == len(self.ended)
        return accounted and not self.posted_twice and not self.wrong and not self.strays

    def document(self) -> dict[str, int | float]:
        """What ``--json`` writes."""
        return {
            "runs": len(self.ended),
            "completed": self.completed,
            "stopped": self.stopped,
            "posted": self.audit.postings,
            "posted_twice": self.posted_twice,
            "kills": len(self.kills),
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
        }


def report_on(
    histories: Sequence[RunHistory], tasks: Mapping[str, Task], kills: Sequence[Kill], where: Path, seconds: float
) -> Report:
    """The report; reads the ledger."""
    by_key: dict[str, list[Posting]] = {}
    for posting in ledger.postings(where):
        by_key.setdefault(posting.step_key, []).append(posting)
    hits = [hit for kill in kills for hit in kill.hits]
    ended = [
        Ended(
            tasks[history.run.run_id],
            history,
            tuple(by_key.get(ledger_key(history.run.run_id), ())),
            tuple(_resumer(hit) for hit in hits if hit.run_id == history.run.run_id),
        )
        for history in histories
    ]
    ended.sort(key=lambda each: path_of(each.task.document))
    return Report(tuple(ended), ledger.audit(where), tuple(kills), seconds)


def _resumer(hit: Hit) -> str:
    if hit.resumed_after is None:
        return "nobody"
    return "another" if hit.resumed_by is None else str(hit.resumed_by)
