"""The workflow of the demo: read, check, assign, ask where a person must look, post, file.

``belay worker --app belay_core.demo.workflow:WORKFLOWS`` goes on with its runs, whoever started them.
"""

import asyncio
from dataclasses import replace
from typing import Final, assert_never

from belay_core.clock import SystemClock
from belay_core.demo import ledger
from belay_core.demo.booking import Booking, Task, booking_for, entry_of, objection, path_of
from belay_core.demo.checking import check
from belay_core.demo.duplicates import duplicate_in_inbox, duplicate_in_ledger
from belay_core.demo.filing import file_document
from belay_core.demo.invoice import Finding, Invoice
from belay_core.demo.reading import read_invoice
from belay_core.demo.rules import Assignment, assign
from belay_core.demo.text import one_line
from belay_core.workflows.context import Context
from belay_core.workflows.current_step import current_step
from belay_core.workflows.function_form import workflow
from belay_core.workflows.gate_answers import Approved, NotNeeded, Rejected
from belay_core.workflows.step import step

NAME: Final = "accounts-payable"
GATE: Final = "approval"
STEPS: Final = ("read", "check", "assign", "post", "file")
"""In the order in which a run takes them."""
POST: Final = "post#1"
"""The key of the one step that may not be repeated, within its run."""


def ledger_key(run_id: str) -> str:
    """The key under which a run posts."""
    return f"{run_id}/{POST}"


@step(idempotent=True)
async def read(task: Task) -> Invoice:
    """Read the document; anything but a UBL invoice fails the run with what is wrong."""
    await _moment(task.moment_ms / 2)
    return await asyncio.to_thread(read_invoice, path_of(task.document))


@step(idempotent=True, name="check")
def check_over(task: Task, invoice: Invoice) -> tuple[Finding, ...]:
    """What a person should look at, duplicates included."""
    findings = check(invoice)
    if task.duplicate_of is not None:
        findings.append(duplicate_in_inbox(task.duplicate_of))
    own = ledger_key(current_step().run_id)
    findings += duplicate_in_ledger(ledger.find_document(path_of(task.ledger), invoice, but_not=own))
    return tuple(findings)


@step(idempotent=True, name="assign")
def assign_cost_centre(invoice: Invoice) -> Assignment:
    """Who bears it."""
    return assign(invoice)


@step
async def post(task: Task, booking: Booking) -> int:
    """Post to the ledger; the number of the posting.

    Not idempotent: the ledger takes whatever it is given. It is told the step's key, which is the same on every
    attempt, so that the ledger itself can be asked whether a posting took place.
    """
    entry = entry_of(booking)
    # A kill before the insert and one after it look the same from outside, which is what makes such a step hard.
    await _moment(task.moment_ms / 2)
    posting = await asyncio.to_thread(ledger.post, path_of(task.ledger), current_step().key, entry)
    await _moment(task.moment_ms / 2)
    return posting


@step(idempotent=True)
async def file(task: Task, invoice: Invoice) -> str:
    """File the document; where it is, below the folder."""
    await _moment(task.moment_ms / 2)
    filed = await asyncio.to_thread(file_document, path_of(task.document), path_of(task.filed), invoice)
    return filed.as_posix()


@workflow(NAME)
async def accounts_payable(ctx: Context, task: Task) -> str:
    """Book one document, once."""
    invoice = await ctx.step(read, task)
    findings = await ctx.step(check_over, task, invoice)
    assignment = await ctx.step(assign_cost_centre, invoice)
    answer = await _decided(ctx, booking_for(invoice, task.name, assignment, findings))
    if isinstance(answer, Rejected):
        return f"rejected by {answer.by}" + (f": {one_line(answer.reason)}" if answer.reason else "")
    posting = await ctx.step(post, task, answer)
    filed = await ctx.step(file, task, invoice)
    return f"posted as {posting} to {answer.cost_centre}, filed as {filed}"


WORKFLOWS: Final = [accounts_payable]


async def _decided(ctx: Context, offered: Booking) -> Booking | Rejected:
    """The booking to go on with. An edit of what may not be edited is not taken: the gate asks again, and says so."""
    shown = offered
    while True:
        answer = await ctx.gate(GATE, subject=shown, when=_asks)
        match answer:
            case Approved(subject=edited, edited=True) if (against := objection(shown, edited)) is not None:
                shown = replace(offered, objection=against)
            case Approved(subject=booking) | NotNeeded(subject=booking):
                return booking
            case Rejected():
                return answer
            case _:
                assert_never(answer)


def _asks(booking: Booking) -> bool:
    return bool(booking.asks)


async def _moment(milliseconds: float) -> None:
    """Take the time that a real system would."""
    await SystemClock().sleep(milliseconds / 1000)
