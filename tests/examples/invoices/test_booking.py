"""Cost centres, the ledger, filing and duplicates."""

import sqlite3
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path

import pytest

from belay_invoices.booking import booking_for, entry_of
from belay_invoices.documents import (
    FilingRefused,
    duplicate_in_inbox,
    file_document,
    filed_name,
    find_duplicates,
)
from belay_invoices.invoice import Finding, Invoice
from belay_invoices.ledger import Entry, audit, post, postings
from belay_invoices.ledger import find_duplicates as find_posted
from belay_invoices.money import DECIMALS, InexactAmount, from_minor_units, minor_units
from belay_invoices.policy import COST_CENTRES, DEFAULT, RULES, Rule, approval_limit, assign, reasons_to_ask
from belay_invoices.ubl_reader import read_invoice
from tests.examples.invoices.ubl import Document, Line


def invoice(document: Document | None = None) -> Invoice:
    return read_invoice((document or Document()).bytes())


def entry(document: Document | None = None) -> Entry:
    known = invoice(document)
    return entry_of(booking_for(known, "a.xml", assign(known), ()))


# ------------------------------------------------------------------ cost centres


@pytest.mark.parametrize(
    ("line", "cost_centre"),
    [
        (Line(name="Electricity, October"), "1100"),
        (Line(name="Softwarelizenz"), "2100"),
        (Line(name="Thing", code="43211503"), "2100"),
        (Line(name="Training for two"), "7100"),
        (Line(name="The trained eye"), "9900"),
        (Line(name="Gasket"), "9900"),
    ],
)
def test_the_first_rule_that_fits_decides(line: Line, cost_centre: str):
    assert assign(invoice(Document(lines=(line,)))).cost_centre == cost_centre


def test_every_rule_names_a_cost_centre_that_there_is():
    assert {rule.cost_centre for rule in RULES} | {DEFAULT.cost_centre} <= set(COST_CENTRES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_all_conditions_of_a_rule_must_hold():
    known = invoice()
    assert Rule("everything", "1").fits(known)
    assert Rule("by name", "1", suppliers=("seller &",)).fits(known)
    assert Rule("by number", "1", suppliers=("DE000000001",)).fits(known)
    assert not Rule("by number", "1", suppliers=("DE00000000",)).fits(known)
    assert not Rule("both", "1", suppliers=("seller",), keywords=("nothing",)).fits(known)
    assert not Rule("abroad", "1", countries=("NL",)).fits(known)


def test_the_buyers_own_reference_comes_first_if_it_is_a_cost_centre():
    power = invoice(Document(lines=(Line(name="electricity"),)))
    assert assign(replace(power, accounting_reference=" 5100 ")).cost_centre == "5100"
    assert assign(replace(power, accounting_reference="0000 free for all")).cost_centre == "1100"


def test_a_person_is_asked_above_the_limit_and_when_something_was_found():
    at_limit = invoice(Document(lines=(Line(price=approval_limit("EUR"), category="Z", rate=Decimal(0)),)))
    assert not reasons_to_ask(at_limit, [])
    assert reasons_to_ask(at_limit, [Finding("duplicate", None, "twice")])
    above = invoice(Document(lines=(Line(price=Decimal("10000.01"), category="Z", rate=Decimal(0)),)))
    assert reasons_to_ask(above, [])
    back = Document(lines=(Line(price=Decimal("10000.01"), category="Z", rate=Decimal(0)),), root="CreditNote")
    assert reasons_to_ask(invoice(back), [])
    assert not reasons_to_ask(invoice(replace(back, currency="JPY")), [])


# ------------------------------------------------------------------ the ledger


def test_posting_twice_makes_two_rows_and_the_audit_says_so(tmp_path: Path):
    ledger = tmp_path / "below" / "ledger.sqlite"
    posted = entry()
    assert post(ledger, "a", posted) == 1
    assert post(ledger, "b", replace(posted, digest="another")) == 2
    assert audit(ledger).posted_twice == ()
    assert post(ledger, "a", posted) == 3
    found = audit(ledger)
    assert found.postings == 3
    assert found.posted_twice == ("a",)
    assert found.documents_twice == (posted.digest,)
    assert [(balance.currency, balance.postings, balance.amount_minor) for balance in found.balances] == [
        ("EUR", 3, 35700)
    ]
    assert [(each.posting, each.step_key) for each in postings(ledger)] == [(1, "a"), (2, "b"), (3, "a")]
    assert postings(ledger)[0].entry == posted


def test_an_empty_ledger_can_be_audited(tmp_path: Path):
    found = audit(tmp_path / "ledger.sqlite")
    assert (found.postings, found.posted_twice, found.balances) == (0, (), ())


def test_credit_notes_take_from_the_balance(tmp_path: Path):
    ledger = tmp_path / "ledger.sqlite"
    post(ledger, "a", entry())
    post(ledger, "b", entry(Document(root="CreditNote", type_code="381")))
    (balance,) = audit(ledger).balances
    assert balance.amount_minor == 0


def test_a_document_posted_before_is_found_under_other_step_keys(tmp_path: Path):
    ledger = tmp_path / "ledger.sqlite"
    known = invoice()
    post(ledger, "a", entry())
    assert find_posted(ledger, known, except_key="a") == []
    assert find_posted(ledger, invoice(Document(number="A-2")), except_key="b") == []
    assert find_posted(ledger, invoice(Document(root="CreditNote")), except_key="b") == []
    (finding,) = find_posted(ledger, known, except_key="b")
    assert finding.code == "duplicate"
    assert "posting 1" in finding.message


def test_text_of_a_document_is_only_text(tmp_path: Path):
    ledger = tmp_path / "ledger.sqlite"
    hostile = Document(number="'); DROP TABLE postings; --", supplier='"; --')
    post(ledger, "' OR 1=1 --", entry(hostile))
    (posting,) = postings(ledger)
    assert (posting.step_key, posting.entry.number) == ("' OR 1=1 --", hostile.number)
    assert find_posted(ledger, invoice(hostile), except_key="' OR 1=1 --") == []
    assert len(find_posted(ledger, invoice(hostile), except_key="x' OR '1'='1")) == 1


def _post_many(ledger: Path, step_key: str) -> list[int]:
    posted = entry()
    return [post(ledger, f"{step_key}-{number}", posted) for number in range(20)]


def test_several_processes_and_threads_post_side_by_side(tmp_path: Path):
    ledger = tmp_path / "ledger.sqlite"
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as processes, ThreadPoolExecutor(3) as threads:
        work = [pool.submit(_post_many, ledger, f"{pool!r}{n}") for n in range(3) for pool in (processes, threads)]
        numbers = [number for future in work for number in future.result()]
    assert sorted(numbers) == list(range(1, 121))
    assert audit(ledger).posted_twice == ()


def test_a_posting_that_fails_leaves_nothing(tmp_path: Path):
    ledger = tmp_path / "ledger.sqlite"
    with pytest.raises(sqlite3.IntegrityError):
        post(ledger, "a", replace(entry(), currency=None))  # type: ignore[arg-type] # refused by the table
    assert audit(ledger).postings == 0


@pytest.mark.parametrize(
    ("amount", "currency", "minor"),
    [("12.34", "EUR", 1234), ("-0.01", "EUR", -1), ("1234", "JPY", 1234), ("1.234", "BHD", 1234), ("5.0", "JPY", 5)],
)
def test_amounts_are_counted_in_the_smallest_unit(amount: str, currency: str, minor: int):
    assert minor_units(Decimal(amount), currency) == minor
    assert from_minor_units(minor, currency) == Decimal(amount)


def test_nothing_is_lost_by_rounding():
    with pytest.raises(InexactAmount):
        minor_units(Decimal("0.5"), "JPY")
    with pytest.raises(InexactAmount):
        minor_units(Decimal(f"1.{'0' * 29}1"), "EUR")
    assert DECIMALS["KWD"] == 3
    largest = Decimal("999999999999999.99")
    assert from_minor_units(minor_units(largest, "EUR"), "EUR") == largest


# ------------------------------------------------------------------ filing


def test_filing_again_changes_nothing(tmp_path: Path):
    source = tmp_path / "in.xml"
    source.write_bytes(Document().bytes())
    known = read_invoice(source)
    filed = file_document(source, tmp_path / "filed", known)
    assert filed == Path("2026-03", f"seller-sons-a-1-{known.digest[:8]}.xml")
    target = tmp_path / "filed" / filed
    before = target.stat()
    assert file_document(source, tmp_path / "filed", known) == filed
    assert target.stat().st_mtime_ns == before.st_mtime_ns
    assert target.read_bytes() == source.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize(
    "number",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        "a/b\\c:d",
        "CON",
        "~root",
        "-rf",
        "%2e%2e%2f",
        "№ 7",
        "x" * 200,
        "\u202e",
    ],
)
def test_no_number_leads_out_of_the_folder(tmp_path: Path, number: str):
    source = tmp_path / "in.xml"
    source.write_bytes(Document(number=number, supplier=f"../{number}").bytes())
    filed = file_document(source, tmp_path / "filed", read_invoice(source))
    assert (tmp_path / "filed" / filed).resolve().parent == (tmp_path / "filed" / "2026-03").resolve()
    assert set(str(filed)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-/.")
    assert len(filed.name) < 100


def test_what_changed_since_it_was_read_is_not_filed(tmp_path: Path):
    source = tmp_path / "in.xml"
    source.write_bytes(Document().bytes())
    known = read_invoice(source)
    source.write_bytes(Document(number="B").bytes())
    with pytest.raises(FilingRefused):
        file_document(source, tmp_path / "filed", known)
    assert not (tmp_path / "filed").exists()


def test_another_document_is_never_overwritten(tmp_path: Path):
    source = tmp_path / "in.xml"
    source.write_bytes(Document().bytes())
    known = read_invoice(source)
    taken = tmp_path / "filed" / filed_name(known)
    taken.parent.mkdir(parents=True)
    taken.write_bytes(b"something else")
    with pytest.raises(FilingRefused):
        file_document(source, tmp_path / "filed", known)
    assert taken.read_bytes() == b"something else"


def test_many_at_once_file_one_whole_document(tmp_path: Path):
    source = tmp_path / "in.xml"
    source.write_bytes(Document().bytes())
    known = read_invoice(source)
    with ThreadPoolExecutor(8) as pool:
        results = {f.result() for f in [pool.submit(file_document, source, tmp_path / "f", known) for _ in range(40)]}
    assert len(results) == 1
    assert [path.is_file() for path in (tmp_path / "f").rglob("*.xml")] == [True]
    assert list((tmp_path / "f").rglob("*.part")) == []


# ------------------------------------------------------------------ duplicates


def write(folder: Path, name: str, document: Document) -> Path:
    path = folder / name
    path.write_bytes(document.bytes())
    return path


def test_the_first_by_name_is_the_original_in_whatever_order_they_come(tmp_path: Path):
    first = write(tmp_path, "a.xml", Document())
    second = write(tmp_path, "b.xml", Document(lines=(Line(price=Decimal(5)),)))
    third = write(tmp_path, "c.xml", Document(number=" a-1"))
    other = write(tmp_path, "d.xml", Document(number="A-2"))
    credit = write(tmp_path, "e.xml", Document(root="CreditNote"))
    stranger = write(tmp_path, "f.xml", Document(supplier_vat="DE000000002", supplier="Somebody else"))
    broken = tmp_path / "g.xml"
    broken.write_bytes(b"<")
    paths = [first, second, third, other, credit, stranger, broken]
    assert find_duplicates(paths) == {second: first, third: first}
    assert find_duplicates(reversed([*paths, tmp_path / "gone.xml"])) == {second: first, third: first}


def test_a_supplier_is_known_by_any_of_its_identities(tmp_path: Path):
    by_vat = write(tmp_path, "a.xml", Document(supplier="Seller and Sons Ltd", supplier_vat="DE 000 000 001"))
    by_both = write(tmp_path, "b.xml", Document())
    by_name = write(tmp_path, "c.xml", Document(supplier="SELLER & SONS", supplier_vat=None))
    assert find_duplicates([by_vat, by_both, by_name]) == {by_both: by_vat, by_name: by_vat}
    assert duplicate_in_inbox("a.xml").code == "duplicate"
