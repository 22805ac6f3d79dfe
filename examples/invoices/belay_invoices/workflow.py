"""The workflow: read a document, check it, assign a cost centre, ask a person where one must look, post, file.

``belay worker --app belay_invoices.workflow:WORKFLOWS`` goes on with its runs, no matter which process started them.
"""

import asyncio
from dataclasses import replace
from typing import Final, assert_never

from belay_core import Approved, Context, NotNeeded, Rejected, current_step, step, workflow
from belay_invoices import ledger
from belay_invoices.booking import Booking, Task, booking_for, entry_of, objection, path_of
from belay_invoices.checks import check
from belay_invoices.documents import duplicate_in_inbox, file_document
from belay_invoices.invoice import Finding, Invoice
from belay_invoices.policy import Assignment, assign
from belay_invoices.text import one_line
from belay_invoices.ubl_reader import read_invoice

NAME: Final = "accounts-payable"
GATE: Final = "approval"
STEPS: Final = ("read", "check", "assign", "post", "file")
"""In the order in which a run takes them."""
POST: Final = "post#1"
"""The key, within its run, of the one step that must not be repeated."""


def ledger_key(run_id: str) -> str:
    """The key under which a run posts."""
    return f"{run_id}/{POST}"


@step(idempotent=True)
async def read(task: Task) -> Invoice:
    """Read the document; anything but a UBL invoice fails the run with the reason."""
    await _simulate_latency(task)
    return await asyncio.to_thread(read_invoice, path_of(task.document))


@step(idempotent=True, name="check")
def check_over(task: Task, invoice: Invoice) -> tuple[Finding, ...]:
    """What a person should look at, duplicates included."""
    findings = check(invoice)
    if task.duplicate_of is not None:
        findings.append(duplicate_in_inbox(task.duplicate_of))
    findings += ledger.find_duplicates(path_of(task.ledger), invoice, except_key=ledger_key(current_step().run_id))
    return tuple(findings)


@step(idempotent=True, name="assign")
def assign_cost_centre(invoice: Invoice) -> Assignment:
    """The cost centre that bears the invoice."""
    return assign(invoice)


@step
async def post(task: Task, booking: Booking) -> int:
    """Post to the ledger; the number of the posting.

    Not idempotent: the ledger takes whatever it is given. It is given the step's key as well, which is the same on
    every attempt, so the ledger itself can be asked whether a posting took place.
    """
    entry = entry_of(booking)
    # From outside, a kill before the insert and one after it look the same. That is what makes such a step hard.
    await _simulate_latency(task)
    posting = await asyncio.to_thread(ledger.post, path_of(task.ledger), current_step().key, entry)
    await _simulate_latency(task)
    return posting


@step(idempotent=True)
async def file(task: Task, invoice: Invoice) -> str:
    """File the document; its path below the folder of filed documents."""
    await _simulate_latency(task)
    filed = await asyncio.to_thread(file_document, path_of(task.document), path_of(task.filed), invoice)
    return filed.as_posix()


@workflow(NAME)
async def accounts_payable(ctx: Context, task: Task) -> str:
    """Book one document, once."""
    invoice = await ctx.step(read, task)
    findings = await ctx.step(check_over, task, invoice)
    assignment = await ctx.step(assign_cost_centre, invoice)
    answer = await _decision(ctx, booking_for(invoice, task.name, assignment, findings))
    if isinstance(answer, Rejected):
        return f"rejected by {answer.by}" + (f": {one_line(answer.reason)}" if answer.reason else "")
    posting = await ctx.step(post, task, answer)
    filed = await ctx.step(file, task, invoice)
    return f"posted as {posting} to {answer.cost_centre}, filed as {filed}"


WORKFLOWS: Final = [accounts_payable]


async def _decision(ctx: Context, proposed: Booking) -> Booking | Rejected:
    """The booking to go on with. After an edit of what may not be edited the gate asks again, and says why."""
    subject = proposed
    while True:
        answer = await ctx.gate(GATE, subject=subject, when=_needs_approval)
        match answer:
            case Approved(subject=edited, edited=True) if (against := objection(subject, edited)) is not None:
                subject = replace(proposed, objection=against)
            case Approved(subject=booking) | NotNeeded(subject=booking):
                return booking
            case Rejected():
                return answer
            case _:
                assert_never(answer)


def _needs_approval(booking: Booking) -> bool:
    return bool(booking.asks)


async def _simulate_latency(task: Task) -> None:
    """Wait as long as a real system would take: half of what the task says a slow step takes."""
    await asyncio.sleep(task.step_ms / 2 / 1000)
