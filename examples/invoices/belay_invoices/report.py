"""What came of a demo: how every run ended, by the database; what was posted, by the ledger; and what to do next."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from belay_core import RunHistory, RunStatus, StepRecord, StepState
from belay_invoices import ledger
from belay_invoices.booking import Task, path_of
from belay_invoices.invoice import Invoice
from belay_invoices.killer import Interruption, Killer
from belay_invoices.money import amount_text, from_minor_units
from belay_invoices.run_watch import state_of
from belay_invoices.terminal import Screen
from belay_invoices.workflow import GATE, STEPS, ledger_key
from belay_invoices.workspace import VARIABLE, Workspace

_HEAD: Final = ("RUN", "DOCUMENT", "AMOUNT", "STATE", "DECISION", "STEPS", "ATTEMPTS", "RESUMED BY")
_STOPPED: Final = frozenset({"failed", "cancelled", "needs_review", "approval"})
_INVOICE: Final = TypeAdapter(Invoice)


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run at the end of the demo, and what the ledger has under its key."""

    task: Task
    history: RunHistory
    postings: tuple[ledger.Posting, ...]
    interruptions: tuple[Interruption, ...]

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.history.run.run_id

    @property
    def state(self) -> str:
        """The status of the run, or what it waits for."""
        return state_of(self.history.run)

    @property
    def is_completed(self) -> bool:
        """Whether it completed, with a posting or with a rejection."""
        return self.history.run.status is RunStatus.COMPLETED

    @property
    def is_stopped(self) -> bool:
        """Whether it has visibly stopped without completing."""
        return self.state in _STOPPED

    @property
    def is_rejected(self) -> bool:
        """Whether an approver rejected it."""
        return bool(self.history.approvals) and self.history.approvals[-1].decision == "rejected"

    @property
    def is_right(self) -> bool:
        """Whether the ledger has one posting of a run that completed, none of one that was rejected, never two.

        A run that stopped may have posted before.
        """
        if self.is_completed:
            return len(self.postings) == (0 if self.is_rejected else 1)
        began_to_post = any(each.step == "post" for each in self.attempts)
        return len(self.postings) <= 1 and (not self.postings or began_to_post)

    @property
    def died_posting(self) -> bool:
        """Whether its worker was killed while it posted, and nobody has said yet whether that took place."""
        posts = [each for each in self.attempts if each.step == "post"]
        return bool(posts) and posts[-1].state is StepState.ORPHANED and posts[-1].resolved_at_ms is None

    @property
    def attempts(self) -> list[StepRecord]:
        """Every attempt of a step."""
        return [each for each in self.history.attempts if each.step in STEPS]

    @property
    def amount(self) -> str:
        """What was posted, else what the document asks for."""
        if self.postings:
            entry = self.postings[0].entry
            return amount_text(from_minor_units(entry.amount_minor, entry.currency), entry.currency)
        outcome = next((each.outcome for each in self.attempts if each.step == "read" and each.outcome), None)
        try:
            invoice = None if outcome is None else _INVOICE.validate_json(outcome)
        except ValidationError:
            # Another version of this package wrote it.
            invoice = None
        return "-" if invoice is None else amount_text(invoice.signed_payable, invoice.currency)

    @property
    def decision(self) -> str:
        """What came of its gate."""
        if self.history.approvals:
            last = self.history.approvals[-1]
            edited = "" if last.edited is None else ", edited"
            return f"{last.decision} by {last.decided_by}{edited}" if last.decision else "none yet"
        return "not needed" if any(each.step == GATE for each in self.history.attempts) else "-"

    @property
    def error(self) -> str:
        """Why it failed."""
        return str(json.loads(self.history.run.error or "{}").get("message", ""))

    def row(self) -> tuple[str, ...]:
        """Its line of the table."""
        done = str(sum(each.state is StepState.SUCCEEDED for each in self.attempts))
        resumed = ", ".join(map(_new_owner, self.interruptions)) or "-"
        attempts = str(len(self.attempts))
        return (self.run_id, self.task.name, self.amount, self.state, self.decision, done, attempts, resumed)


@dataclass(frozen=True, slots=True)
class Report:
    """All runs of a demo, and the audit of the ledger."""

    runs: tuple[RunReport, ...]
    audit: ledger.Audit
    kills: int
    interruptions: tuple[Interruption, ...]
    seconds: float

    @property
    def completed(self) -> int:
        """Runs that completed, with a posting or with a rejection."""
        return sum(each.is_completed for each in self.runs)

    @property
    def stopped(self) -> int:
        """Runs that have visibly stopped."""
        return sum(each.is_stopped for each in self.runs)

    @property
    def resumed(self) -> int:
        """Runs that were taken over after a kill, and have completed or visibly stopped since."""
        at_rest = {each.run_id for each in self.runs if each.is_completed or each.is_stopped}
        return len({each.run_id for each in self.interruptions if each.taken_over_after_ms is not None} & at_rest)

    @property
    def wrong(self) -> list[RunReport]:
        """Runs of which the ledger does not have what it should."""
        return [each for each in self.runs if not each.is_right]

    @property
    def strays(self) -> int:
        """Postings of the ledger that belong to none of the runs."""
        return self.audit.postings - sum(len(each.postings) for each in self.runs)

    @property
    def is_good(self) -> bool:
        """Whether every document was posted exactly once or is visibly stopped, by what the ledger says."""
        accounted = self.completed + self.stopped == len(self.runs)
        return accounted and not self.audit.posted_twice and not self.wrong and not self.strays

    def document(self) -> dict[str, int | float]:
        """What ``--json`` writes."""
        return {
            "runs": len(self.runs),
            "completed": self.completed,
            "stopped": self.stopped,
            "posted": self.audit.postings,
            "posted_twice": len(self.audit.posted_twice),
            "kills": self.kills,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
        }


def make_report(
    histories: Sequence[RunHistory], tasks: Mapping[str, Task], killer: Killer | None, where: Path, seconds: float
) -> Report:
    """The report on runs, with the task of each by run id; reads the ledger."""
    postings: dict[str, list[ledger.Posting]] = {}
    for posting in ledger.postings(where):
        postings.setdefault(posting.step_key, []).append(posting)
    interruptions = () if killer is None else tuple(killer.interruptions)
    runs = [
        RunReport(
            tasks[history.run.run_id],
            history,
            tuple(postings.get(ledger_key(history.run.run_id), ())),
            tuple(each for each in interruptions if each.run_id == history.run.run_id),
        )
        for history in histories
    ]
    runs.sort(key=lambda each: path_of(each.task.document))
    kills = 0 if killer is None else len(killer.kills)
    return Report(tuple(runs), ledger.audit(where), kills, interruptions, seconds)


def ways_out(run: RunReport, workspace: Workspace) -> list[str]:
    """Why a run is stopped, and the commands that get it going, one a line."""
    match run.state:
        case "approval":
            verbs = ("approve", "reject")
            return ["it waits for a decision:", *(f"  {workspace.command(verb, run.run_id)}" for verb in verbs)]
        case "needs_review" if run.died_posting and run.postings:
            posting = run.postings[0].posting
            command = workspace.command("resolve", run.run_id, "--happened", str(posting))
            return [f"its worker was killed while it posted, and the ledger has it, as {posting}:", f"  {command}"]
        case "needs_review" if run.died_posting:
            command = workspace.command("resolve", run.run_id, "--retry")
            return ["its worker was killed while it posted, and the ledger does not have it:", f"  {command}"]
        case "needs_review":
            return ["it needs an operator:", f"  {workspace.command('explain', run.run_id)}"]
        case "failed":
            return [run.error]
        case _:
            return [run.state]


def print_report(screen: Screen, workspace: Workspace, report: Report) -> None:
    """The table, what stopped and what to do about it, what the ledger has, and what was killed."""
    screen.close()
    screen.write()
    rows = [each.row() for each in report.runs]
    # An id begins with the time, which is nearly the same for all of them; its end tells them apart.
    screen.table(_HEAD, rows, narrow=[(f"…{row[0][-8:]}", *row[1:]) for row in rows])
    for lines in (_stopped(report, workspace), _ledger(report, workspace), _kills(report)):
        for line in lines:
            screen.write(line)
    figures = f"{_count(len(report.runs), 'run')}: {report.completed} completed, {report.stopped} stopped"
    screen.write()
    screen.write(f"{figures}, in {report.seconds:.1f} s")


def print_interruption(screen: Screen, workspace: Workspace, moving: int, not_started: int) -> None:
    """What is left after Ctrl-C, and how to go on with it."""
    screen.close()
    screen.write()
    screen.write(f"interrupted; the workers have stopped in good order; runs that a worker has to go on with: {moving}")
    if workspace.has_password:
        screen.write(f"  (with {VARIABLE} set to the database's URL)")
    screen.write(f"  {workspace.worker_command()}")
    screen.write(f"  {workspace.command('runs')}")
    if not_started:
        screen.write(f"{_count(not_started, 'document')} had no run yet; another demo begins with all of them")
    screen.write(f"the ledger and the filed documents are in {workspace.folder}")


def _stopped(report: Report, workspace: Workspace) -> list[str]:
    stopped = [each for each in report.runs if each.is_stopped]
    if not stopped:
        return []
    lines = ["", "stopped:"]
    for each in stopped:
        first, *more = ways_out(each, workspace)
        lines += [f"  {each.task.name}: {first}", *(f"  {line}" for line in more)]
    if any(each.state in {"approval", "needs_review"} for each in stopped):
        lines += ["  and then, to go on with what was decided:", f"    {workspace.worker_command()}"]
    return lines


def _ledger(report: Report, workspace: Workspace) -> list[str]:
    audit = report.audit
    twice = len(audit.posted_twice)
    lines = ["", f"the ledger, {workspace.ledger}, has {_count(audit.postings, 'posting')}, {twice} of them twice:"]
    for balance in audit.balances:
        amount = amount_text(from_minor_units(balance.amount_minor, balance.currency), balance.currency)
        lines.append(f"  {balance.postings} in {balance.currency}, together {amount}")
    if audit.documents_twice:
        number = _count(len(audit.documents_twice), "document")
        lines.append(f"  {number} came more than once, to the byte, and was approved each time")
    counts = Counter(map(_what_became_of, report.runs))
    lines += [f"  {_count(count, 'run')}: {what}" for what, count in counts.items()]
    for each in report.wrong:
        lines.append(f"  WRONG: run {each.run_id} of {each.task.name} has {_count(len(each.postings), 'posting')}")
    if report.strays:
        lines.append(f"  WRONG: {report.strays} postings belong to none of the runs")
    return lines


def _what_became_of(run: RunReport) -> str:
    if run.is_completed:
        return "completed as rejected, and not posted" if run.is_rejected else "completed, and posted exactly once"
    return f"stopped ({run.state}), and {'posted once' if run.postings else 'not posted'}"


def _kills(report: Report) -> list[str]:
    if not report.kills:
        return []
    interruptions = report.interruptions
    runs = {each.run_id for each in interruptions}
    again = f", {len(interruptions)} times in all" if len(interruptions) > len(runs) else ""
    lines = ["", f"{_count(report.kills, 'worker')} killed, which owned {_count(len(runs), 'run')}{again}"]
    times = [each.taken_over_after_ms for each in interruptions if each.taken_over_after_ms is not None]
    if times:
        slowest = f"the slowest {max(times) / 1000:.1f} s after the kill"
        lines.append(f"{_count(report.resumed, 'run')} resumed by other workers, {slowest}")
    return lines


def _new_owner(interruption: Interruption) -> str:
    if interruption.taken_over_after_ms is None:
        return "nobody"
    return "another" if interruption.taken_over_by is None else str(interruption.taken_over_by)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
