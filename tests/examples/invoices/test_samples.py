"""Every sample that is shipped, and what becomes of it."""

from importlib.resources import files
from pathlib import Path

import pytest

from belay_invoices.checks import check
from belay_invoices.documents import find_duplicates
from belay_invoices.invoice import Kind, UnreadableInvoice
from belay_invoices.policy import assign, reasons_to_ask
from belay_invoices.ubl_reader import read_invoice

SAMPLES = Path(str(files("belay_invoices"))) / "samples"

# The amount as it is booked, and its cost centre.
GOOD = {
    "01-domestic.xml": ("1429.07 EUR", "1100"),
    "02-credit-note.xml": ("-269.89 EUR", "6100"),
    "03-several-vat-rates.xml": ("444.02 EUR", "6100"),
    "04-exempt.xml": ("2340.00 EUR", "7100"),
    "05-reverse-charge.xml": ("4252.50 EUR", "5100"),
    "06-foreign-currency.xml": ("8484.70 USD", "2100"),
    "07-allowance-and-charge.xml": ("1171.90 EUR", "4100"),
    "08-prepaid-and-rounding.xml": ("1734.60 EUR", "3100"),
    "09-above-the-limit.xml": ("28629.02 EUR", "4100"),
    "11-duplicate.xml": ("1429.07 EUR", "1100"),
    "16-intra-community.xml": ("1977.75 EUR", "4100"),
    "17-corrected-lines.xml": ("2360.96 EUR", "1100"),
}
BAD = {
    "12-broken.xml": "not_xml",
    "13-entity-bomb.xml": "hostile_xml",
    "14-external-entity.xml": "hostile_xml",
    "15-cross-industry.xml": "other_format",
    "18-missing-currency.xml": "missing_field",
}


def test_every_sample_has_an_expected_outcome():
    assert {path.name for path in SAMPLES.iterdir()} == {*GOOD, *BAD, "10-wrong-total.xml"}


@pytest.mark.parametrize("name", GOOD)
def test_good_samples_are_read_without_a_finding(name: str):
    invoice = read_invoice(SAMPLES / name)
    assert check(invoice) == []
    amount, cost_centre = GOOD[name]
    assert f"{invoice.signed_payable} {invoice.currency}" == amount
    assert assign(invoice).cost_centre == cost_centre
    assert bool(reasons_to_ask(invoice, [])) == (name == "09-above-the-limit.xml")


@pytest.mark.parametrize("name", BAD)
def test_bad_samples_are_a_clear_error(name: str):
    with pytest.raises(UnreadableInvoice) as caught:
        read_invoice(SAMPLES / name)
    assert caught.value.code == BAD[name]


def test_the_wrong_total_is_found_with_both_amounts():
    invoice = read_invoice(SAMPLES / "10-wrong-total.xml")
    (finding,) = check(invoice)
    assert (finding.code, finding.term) == ("BR-CO-16", "BT-115")
    assert "366.28 EUR" in finding.message
    assert "636.28 EUR" in finding.message
    assert reasons_to_ask(invoice, [finding])


def test_the_duplicate_is_found_by_its_number_although_its_bytes_differ():
    paths = list(SAMPLES.iterdir())
    assert find_duplicates(paths) == {SAMPLES / "11-duplicate.xml": SAMPLES / "01-domestic.xml"}
    assert (SAMPLES / "11-duplicate.xml").read_bytes() != (SAMPLES / "01-domestic.xml").read_bytes()


def test_details_of_the_samples_are_kept():
    credit = read_invoice(SAMPLES / "02-credit-note.xml")
    assert credit.kind is Kind.CREDIT_NOTE
    assert credit.due_date is not None
    dollars = read_invoice(SAMPLES / "06-foreign-currency.xml")
    assert str(dollars.totals.vat) == "1354.70"
    assert str(dollars.totals.vat_accounting) == "1249.72"
    assert len(dollars.vat_lines) == 1
    latin = read_invoice(SAMPLES / "16-intra-community.xml")
    assert 'Bearing housing for ½" shaft' in latin.lines.items
