"""The workflow of the demo by itself, over stores in memory."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from belay_core import InvalidInput, RunFailed, RunHandle, Worker
from belay_invoices import ledger
from belay_invoices.booking import Booking, path_of, uri_of
from belay_invoices.documents import Inbox, read_inbox, tasks_for
from belay_invoices.report import make_report
from belay_invoices.run_watch import state_of
from belay_invoices.workflow import STEPS, WORKFLOWS, accounts_payable
from belay_testing.drive import decide, run_ready
from tests.examples.invoices.demo_runs import large, small
from tests.examples.invoices.ubl import Document


class Office:
    """Runs of one worker over documents of its folder."""

    def __init__(self, worker: Worker, folder: Path) -> None:
        self.worker = worker
        self.folder = folder
        self.ledger = folder / "ledger.db"
        self.runs: dict[str, RunHandle[str]] = {}
        self.tasks: dict[str, Any] = {}

    async def book(self, *documents: Document | bytes) -> list[RunHandle[str]]:
        """Start a run for each of them, and go as far as it goes."""
        paths = [self.folder / f"{number:03d}.xml" for number in range(len(documents))]
        for path, document in zip(paths, documents, strict=True):
            path.write_bytes(document if isinstance(document, bytes) else document.bytes())
        inbox = Inbox(self.folder, tuple(paths), 0)
        tasks = tasks_for(inbox, self.ledger, self.folder / "filed", batch="b", step_ms=0)
        runs = [await self.worker.client.start(accounts_payable, task) for task in tasks]
        self.tasks.update({run.run_id: task for run, task in zip(runs, tasks, strict=True)})
        await run_ready(self.worker)
        return runs

    async def subject(self, run: RunHandle[str]) -> Booking:
        """What is asked at the run's gate."""
        (asked,) = await self.worker.client.approvals(run)
        return TypeAdapter(Booking).validate_json(asked.subject)

    async def state(self, run: RunHandle[str]) -> str:
        return state_of(await self.worker.client.get(run))

    async def report(self, *runs: RunHandle[str]):
        histories = [await self.worker.client.history(run) for run in runs]
        return make_report(histories, self.tasks, None, self.ledger, 1.0)


@pytest.fixture
async def office(belay_worker, tmp_path: Path):
    async with belay_worker(WORKFLOWS) as worker:
        yield Office(worker, tmp_path)


async def test_an_invoice_is_booked_in_five_steps_without_anybody_looking(office: Office):
    (run,) = await office.book(small(1))
    assert (await run.result()).startswith("posted as 1 to 3100, filed as 2026-03/house-1-n-1-")
    history = await office.worker.client.history(run)
    recorded = sorted(
        (each for each in history.attempts if each.kind.value == "step"), key=lambda each: each.recorded or 0
    )
    assert [each.step for each in recorded] == list(STEPS)
    assert [each.step for each in recorded if not each.idempotent] == ["post"]
    (posting,) = ledger.postings(office.ledger)
    assert posting.step_key == f"{run.run_id}/post#1"
    assert (posting.entry.amount_minor, posting.entry.cost_centre) == (11900, "3100")


async def test_what_is_no_invoice_is_a_stored_error_and_the_others_go_on(office: Office):
    bad, good = await office.book(b"not an invoice", small(1))
    with pytest.raises(RunFailed) as caught:
        await bad.result()
    assert caught.value.type == "StepFailed"
    assert caught.value.message.startswith("step read failed: UnreadableInvoice: not_xml: the XML is not well-formed")
    assert (await good.result()).startswith("posted as 1 ")


async def test_a_gate_shows_everything_there_is_to_know(office: Office):
    (run,) = await office.book(replace(large(1), changed={"PayableAmount": Decimal(23_801)}))
    shown = await office.subject(run)
    assert (shown.document, shown.supplier, shown.number) == ("000.xml", "House 1", "N-1")
    assert (shown.amount, shown.currency, shown.cost_centre) == (Decimal(23_801), "EUR", "3100")
    assert [reason.partition(":")[0] for reason in shown.asks[:-1]] == ["BR-CO-16"]
    assert "limit of 10000.00 EUR" in shown.asks[-1]
    assert ledger.postings(office.ledger) == []


async def test_a_rejection_completes_the_run_and_posts_nothing(office: Office):
    (run,) = await office.book(large(1))
    await decide(office.worker, run, "approval", "rejected", by="ana", reason="not\nours")
    assert await run.result() == "rejected by ana: not ours"
    assert ledger.postings(office.ledger) == []
    assert (await office.report(run)).is_good


async def test_what_is_posted_is_what_the_approver_wrote(office: Office):
    (run,) = await office.book(large(1))
    edited = replace(await office.subject(run), cost_centre="4100", amount=Decimal("1000.10"))
    await decide(office.worker, run, "approval", by="ana", edited=edited)
    assert (await run.result()).startswith("posted as 1 to 4100")
    (posting,) = ledger.postings(office.ledger)
    assert (posting.entry.cost_centre, posting.entry.amount_minor) == ("4100", 100_010)
    report = await office.report(run)
    assert report.runs[0].row()[2:5] == ("1000.10 EUR", "completed", "approved by ana, edited")


@pytest.mark.parametrize(
    ("changes", "objection"),
    [
        ({"cost_centre": "4711"}, "There is no such cost centre"),
        ({"amount": Decimal(23_801)}, "may not be more than the document asks for"),
        ({"amount": Decimal(-5)}, "must have the sign"),
        ({"amount": Decimal(0)}, "must have the sign"),
        ({"amount": Decimal("5.001")}, "more decimals"),
        ({"amount": Decimal("5." + "0" * 60 + "1")}, "may not be more"),
        ({"amount": Decimal("1E+999999")}, "may not be more"),
        ({"supplier": "Somebody else"}, "not supplier"),
        ({"digest": "0" * 64, "document": "x"}, "not document, digest"),
    ],
)
async def test_an_edit_that_may_not_be_made_is_asked_about_again(office: Office, changes, objection: str):
    (run,) = await office.book(large(1))
    shown = await office.subject(run)
    await decide(office.worker, run, "approval", by="ana", edited=replace(shown, **changes))
    again = await office.subject(run)
    assert objection in (again.objection or "")
    assert replace(again, objection=None) == shown
    assert ledger.postings(office.ledger) == []
    # The objection may stay or go in a further edit: it is belay's own word, not the document's.
    await decide(office.worker, run, "approval", by="ana", edited=replace(shown, cost_centre="4100"))
    assert (await run.result()).startswith("posted as 1 to 4100")


@pytest.mark.parametrize("edit", ['{"cost_centre":"4100"}', '{"cost_center":"4100",', "[]"])
async def test_an_edit_that_is_no_booking_is_refused_and_the_run_still_waits(office: Office, edit: str):
    (run,) = await office.book(large(1))
    (asked,) = await office.worker.client.approvals(run)
    text = edit + asked.subject[1:] if edit.endswith(",") else edit
    with pytest.raises(InvalidInput, match="edited: "):
        await office.worker.client.decide(asked, "approved", by="ana", edited_text=text)
    await run_ready(office.worker)
    assert await office.state(run) == "approval"
    assert ledger.postings(office.ledger) == []


async def test_an_amount_that_cannot_be_paid_fails_unless_it_is_edited(office: Office):
    odd = replace(small(1), changed={"PayableAmount": Decimal("119.005")})
    first, second = await office.book(odd, replace(odd, number="N-2"))
    await decide(office.worker, first, "approval", by="ana")
    with pytest.raises(RunFailed, match=r"step post failed: InexactAmount: 119\.005 EUR is no whole number"):
        await first.result()
    edited = replace(await office.subject(second), amount=Decimal("119.01"))
    await decide(office.worker, second, "approval", by="ana", edited=edited)
    assert (await second.result()).startswith("posted as 1 ")


async def test_the_second_of_two_equal_invoices_is_asked_about(office: Office):
    first, second = await office.book(small(1), replace(small(1), due="2026-05-30"))
    assert (await first.result()).startswith("posted as 1 ")
    # The first one may have been posted when the second one is checked.
    beside, *posted = (await office.subject(second)).asks
    assert beside == "duplicate: This supplier's invoice of this number is also in 000.xml."
    assert posted in ([], ["duplicate: This supplier's invoice of this number was posted before, as posting 1."])
    (later,) = await office.book(small(1))
    assert (await office.subject(later)).asks == (
        "duplicate: This supplier's invoice of this number was posted before, as posting 1.",
    )


async def test_a_document_that_changes_while_its_gate_is_open_is_not_filed(office: Office):
    (run,) = await office.book(large(1))
    (office.folder / "000.xml").write_bytes(large(2).bytes())
    await decide(office.worker, run, "approval", by="ana")
    with pytest.raises(RunFailed, match="step file failed: FilingRefused: the file has changed since it was read"):
        await run.result()
    report = await office.report(run)
    assert (report.stopped, report.document()["posted"], report.is_good) == (1, 1, True)


async def test_a_ledger_that_has_something_twice_is_found_out(office: Office):
    runs = await office.book(small(1), small(2), b"")
    (first, *_) = ledger.postings(office.ledger)
    good = await office.report(*runs)
    assert good.is_good
    assert good.document() == {
        "runs": 3,
        "completed": 2,
        "stopped": 1,
        "posted": 2,
        "posted_twice": 0,
        "kills": 0,
        "resumed": 0,
        "seconds": 1.0,
    }
    ledger.post(office.ledger, first.step_key, first.entry)
    bad = await office.report(*runs)
    assert (bad.audit.posted_twice, bad.is_good, [each.run_id for each in bad.wrong]) == (
        (first.step_key,),
        False,
        [first.step_key.partition("/")[0]],
    )


async def test_a_posting_of_nobody_and_one_that_is_missing_are_found_out(office: Office):
    (run,) = await office.book(small(1))
    (posting,) = ledger.postings(office.ledger)
    ledger.post(office.ledger, "somebody/post#1", posting.entry)
    report = await office.report(run)
    assert (report.strays, report.is_good) == (1, False)
    office.ledger.unlink()
    report = await office.report(run)
    assert (report.is_good, [each.run_id for each in report.wrong]) == (False, [run.run_id])


def test_every_file_name_survives_as_a_uri(tmp_path: Path):
    for name in ("plain.xml", "ä ö%20#?.xml", "a\nb\x1b.xml", "latin-\udce9.xml", "-rf"):
        path = tmp_path / name
        path.write_bytes(b"")
        uri = uri_of(path)
        assert uri.isascii()
        assert json.loads(json.dumps(uri)) == uri
        assert path_of(uri) == path
        assert path_of(uri).exists()
    assert len(read_inbox(tmp_path).documents) == 5
