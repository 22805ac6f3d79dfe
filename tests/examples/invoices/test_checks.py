"""Checking: right documents have no findings, and each wrong amount has the finding of its rule."""

import dataclasses
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from belay_invoices.checks import MAXIMUM_FINDINGS, check
from belay_invoices.ubl_reader import read_invoice
from tests.examples.invoices.ubl import PEPPOL, Document, Extra, Line, cents

CATEGORIES = st.sampled_from(
    [
        *(("S", Decimal(rate)) for rate in ("5.5", "7", "19", "25.00")),
        *((code, Decimal(0)) for code in ("Z", "E", "AE", "K", "G")),
        ("L", Decimal("6.5")),
        ("L", Decimal(0)),
        ("M", Decimal(4)),
    ]
)
AMOUNTS = st.decimals("0", "20000", places=2)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    category, rate = draw(CATEGORIES)
    return Line(
        quantity=draw(st.decimals("-50", "5000", places=3)),
        price=draw(st.decimals("0", "3000", places=4)),
        base=draw(st.none() | st.sampled_from([Decimal(1), Decimal(100), Decimal("0.5")])),
        category=category,
        rate=rate,
        allowance=draw(st.just(Decimal(0)) | st.decimals("0.01", "20", places=2)),
        charge=draw(st.just(Decimal(0)) | st.decimals("0.01", "20", places=2)),
    )


@st.composite
def documents(draw: st.DrawFn) -> Document:
    kept = tuple(draw(st.lists(lines(), min_size=1, max_size=8)))
    keys = [(line.category, line.rate) for line in kept]
    extras = tuple(
        Extra(draw(AMOUNTS), charge=draw(st.booleans()), category=category, rate=rate)
        for category, rate in draw(st.lists(st.sampled_from(keys), max_size=3))
    )
    return Document(
        lines=kept,
        extras=extras,
        root=draw(st.sampled_from(["Invoice", "CreditNote"])),
        currency=draw(st.sampled_from(["EUR", "DKK", "USD", "BHD"])),
        customization=PEPPOL,
        prepaid=draw(st.none() | AMOUNTS),
        rounding=draw(st.none() | st.decimals("-0.99", "0.99", places=2)),
        tax_currency=draw(st.sampled_from([None, "SEK", "EUR"])),
    )


def codes(document: Document) -> set[str]:
    return {finding.code for finding in check(read_invoice(document.bytes()))}


@settings(max_examples=120, deadline=None)
@given(documents())
def test_right_documents_have_no_findings(document: Document):
    assert check(read_invoice(document.bytes())) == []


WRONG = {
    "LineExtensionAmount": {"BR-CO-10", "BR-CO-13"},
    "AllowanceTotalAmount": {"BR-CO-11", "BR-CO-13"},
    "ChargeTotalAmount": {"BR-CO-12", "BR-CO-13"},
    "TaxExclusiveAmount": {"BR-CO-13", "BR-CO-15"},
    "TaxAmount": {"BR-CO-14", "BR-CO-15"},
    "TaxInclusiveAmount": {"BR-CO-15", "BR-CO-16"},
    "PrepaidAmount": {"BR-CO-16"},
    "PayableRoundingAmount": {"BR-CO-16"},
    "PayableAmount": {"BR-CO-16"},
}


@settings(max_examples=120, deadline=None)
@given(documents(), st.sampled_from(sorted(WRONG)), st.decimals("-9", "9", places=2))
def test_one_wrong_total_has_exactly_the_findings_of_its_rules(document: Document, name: str, error: Decimal):
    assume(error)
    right = document.amounts()[name]
    wrong = dataclasses.replace(document, changed={name: (right or 0) + error})
    assert codes(wrong) == WRONG[name]


@settings(max_examples=100, deadline=None)
@given(CATEGORIES, AMOUNTS, st.sampled_from(["TaxableAmount", "GroupTaxAmount"]))
def test_a_wrong_breakdown_is_found(key: tuple[str, Decimal], net: Decimal, name: str):
    category, rate = key
    right = net if name == "TaxableAmount" else cents(net * rate / 100)
    line = Line(price=net, category=category, rate=rate)
    found = codes(Document(lines=(line,), changed={name: right + 5}))
    rules = {"K": "IC", "L": "AF", "M": "AG"}.get(category, category)
    assert found >= ({f"BR-{rules}-08"} if name == "TaxableAmount" else {"BR-CO-14", "BR-CO-17"})


def test_the_finding_gives_both_amounts():
    (finding,) = check(read_invoice(Document(changed={"PayableAmount": Decimal("191.00")}).bytes()))
    assert (finding.code, finding.term) == ("BR-CO-16", "BT-115")
    assert (finding.expected, finding.found) == (Decimal(119), Decimal(191))
    assert finding.message == (
        "The amount due (BT-115) is 191.00 EUR, and should be 119.00 EUR: "
        "the total with VAT, less what is paid, plus rounding."
    )
    assert str(finding) == f"BR-CO-16: {finding.message}"


def replaced(*pairs: tuple[str, str], document: Document | None = None) -> set[str]:
    xml = (document or Document()).xml()
    for old, new in pairs:
        assert old in xml
        xml = xml.replace(old, new)
    return {finding.code for finding in check(read_invoice(xml.encode()))}


EXEMPT = Document(lines=(Line(category="E", rate=Decimal(0)),))
REASON = "<cbc:TaxExemptionReason>exempt</cbc:TaxExemptionReason>"
TAX_TOTAL = Document().xml()
TAX_TOTAL = TAX_TOTAL[TAX_TOTAL.index("<cac:TaxTotal>") : TAX_TOTAL.index("<cac:LegalMonetaryTotal>")]


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"BR-04"}, lambda: codes(Document(type_code=None))),
        ({"BR-07"}, lambda: replaced((">Buyer<", "> <"))),
        ({"BR-12"}, lambda: codes(Document(changed={"LineExtensionAmount": None}))),
        ({"BR-13"}, lambda: codes(Document(changed={"TaxExclusiveAmount": None}))),
        ({"BR-14"}, lambda: codes(Document(changed={"TaxInclusiveAmount": None}))),
        ({"BR-CO-15"}, lambda: codes(Document(changed={"TaxAmount": None})) - {"BR-CO-14"}),
        ({"BR-CO-11"}, lambda: codes(Document(extras=(Extra(Decimal(0)),), changed={"AllowanceTotalAmount": None}))),
        ({"due-before-issue"}, lambda: codes(Document(due="2026-03-30"))),
        (set(), lambda: codes(Document(due="2026-03-31"))),
        ({"BR-CO-25"}, lambda: codes(Document(due=None))),
        (set(), lambda: codes(Document(due=None, root="CreditNote"))),
        ({"BR-CL-04"}, lambda: codes(Document(currency="EUX"))),
        ({"BR-CL-05"}, lambda: codes(Document(tax_currency="QQQ"))),
        ({"BR-53"}, lambda: replaced(('currencyID="SEK"', 'currencyID="NOK"'), document=Document(tax_currency="SEK"))),
        (
            {"currency-mixed"},
            lambda: replaced(('<cbc:PayableAmount currencyID="EUR"', '<cbc:PayableAmount currencyID="USD"')),
        ),
        ({"minor-unit"}, lambda: codes(Document(currency="JPY", rounding=Decimal("0.50")))),
        (set(), lambda: codes(Document(currency="JPY"))),
        ({"sign"}, lambda: codes(Document(type_code="381", lines=(Line(Decimal(-1)),)))),
        ({"BR-CO-18", "BR-S-01", "BR-CO-15"}, lambda: replaced((TAX_TOTAL, ""))),
        (
            {"BR-CO-15"},
            lambda: replaced(
                (
                    TAX_TOTAL,
                    TAX_TOTAL + '<cac:TaxTotal><cbc:TaxAmount currencyID="EUR">0</cbc:TaxAmount></cac:TaxTotal>',
                )
            ),
        ),
        ({"BR-E-10"}, lambda: replaced((REASON, ""), document=EXEMPT)),
        ({"BR-S-10"}, lambda: replaced(("</cbc:Percent><cac:TaxScheme>", f"</cbc:Percent>{REASON}<cac:TaxScheme>"))),
        ({"BR-CL-17"}, lambda: replaced(("<cbc:ID>S</cbc:ID>", "<cbc:ID>Q</cbc:ID>"))),
        ({"BR-CO-04", "BR-S-08"}, lambda: replaced(("ClassifiedTaxCategory", "Other"))),
        ({"BR-S-05", "BR-CO-17"}, lambda: replaced((">19<", ">0<"))),
        (
            {"BR-DEC-18", "minor-unit", "BR-CO-16"},
            lambda: codes(Document(changed={"PayableAmount": Decimal("119.001")})),
        ),
        (set(), lambda: codes(Document(changed={"PayableAmount": Decimal("119.00000")}))),
        (
            {"PEPPOL-EN16931-R120"},
            lambda: replaced(
                (">1</cbc:InvoicedQuantity>", ">2</cbc:InvoicedQuantity>"), document=Document(customization=PEPPOL)
            ),
        ),
        (set(), lambda: replaced((">1</cbc:InvoicedQuantity>", ">2</cbc:InvoicedQuantity>"))),
    ],
)
def test_each_rule_has_its_finding(expected: set[str], found: Callable[[], set[str]]):
    assert found() == expected


def test_an_invoice_without_lines_is_found():
    xml = Document(changed={"LineExtensionAmount": None}).xml()
    start, end = xml.index("<cac:InvoiceLine>"), xml.index("</Invoice>")
    assert "BR-16" in {finding.code for finding in check(read_invoice((xml[:start] + xml[end:]).encode()))}


def test_each_rate_needs_its_group():
    document = Document(lines=(Line(), Line(rate=Decimal(7))))
    xml = document.xml()
    end = xml.index("</cac:TaxSubtotal>") + len("</cac:TaxSubtotal>")
    second = xml.index("</cac:TaxSubtotal>", end) + len("</cac:TaxSubtotal>")
    invoice = read_invoice((xml[:end] + xml[second:]).encode())
    assert {finding.code for finding in check(invoice)} == {"BR-CO-14", "BR-S-08"}


def test_a_line_given_for_nothing_needs_no_group_of_its_rate():
    document = Document(lines=(Line(), Line(price=Decimal(0), rate=Decimal(7))))
    xml = document.xml()
    end = xml.index("</cac:TaxSubtotal>") + len("</cac:TaxSubtotal>")
    second = xml.index("</cac:TaxSubtotal>", end) + len("</cac:TaxSubtotal>")
    assert check(read_invoice((xml[:end] + xml[second:]).encode())) == []


def test_the_tolerance_of_the_standard_is_kept_and_no_more():
    """VAT added up line by line differs by cents; the rule bears less than one unit."""
    for error, expected in ((Decimal("0.99"), set[str]()), (Decimal("1.00"), {"BR-CO-17"})):
        changed = {"GroupTaxAmount": 19 + error, "TaxAmount": 19 + error}
        changed |= {"TaxInclusiveAmount": 119 + error, "PayableAmount": 119 + error}
        assert codes(Document(changed=changed)) == expected


def test_a_group_of_the_breakdown_has_all_its_fields():
    group = TAX_TOTAL[TAX_TOTAL.index("<cac:TaxSubtotal>") : TAX_TOTAL.index("</cac:TaxTotal>")]
    for element, expected in (
        ("TaxableAmount", {"BR-45"}),
        ("TaxAmount", {"BR-46"}),
        ("ID", {"BR-47", "BR-S-01"}),
        ("Percent", {"BR-48", "BR-CO-17", "BR-S-08"}),
    ):
        start, end = group.index(f"<cbc:{element}"), group.index(f"</cbc:{element}>") + len(f"</cbc:{element}>")
        assert replaced((group, group[:start] + group[end:])) == expected
    fine = group.replace(">100.00</cbc:TaxableAmount>", ">100.001</cbc:TaxableAmount>")
    assert replaced((group, fine)) == {"BR-DEC-19"}


def test_two_groups_of_an_exempt_category_are_one_too_many():
    xml = EXEMPT.xml()
    group = xml[xml.index("<cac:TaxSubtotal>") : xml.index("</cac:TaxTotal>")]
    assert replaced((group, group + group), document=EXEMPT) == {"BR-E-01"}


def test_split_payment_is_known_and_left_to_italy():
    assert codes(Document(lines=(Line(category="B", rate=Decimal(22)),))) == set()


def test_not_subject_to_vat_has_no_rate_and_stands_alone():
    alone = Document(lines=(Line(category="O", rate=None),))
    assert codes(alone) == set()
    assert codes(Document(lines=(Line(), Line(category="O", rate=None)))) == {"BR-O-11"}


def test_third_party_payments_add_to_what_is_due_in_the_extension_that_has_them():
    extension = "urn:cen.eu:en16931:2017#compliant#x#conformant#urn:xeinkauf.de:kosit:extension:xrechnung_3.0"
    payment = '<cac:PrepaidPayment><cbc:PaidAmount currencyID="EUR">9.50</cbc:PaidAmount></cac:PrepaidPayment>'
    pair = ("<cac:TaxTotal>", payment + "<cac:TaxTotal>")
    due = {"PayableAmount": Decimal("128.50")}
    assert replaced(pair, document=Document(customization=extension, changed=due)) == set()
    assert replaced(pair, document=Document(changed=due)) == {"BR-CO-16"}


def test_oioubl_repeats_the_tax_where_others_have_the_total_without_it():
    danish = Document(customization="OIOUBL-2.02", changed={"TaxExclusiveAmount": Decimal(19)})
    pairs = (("<cbc:ID>S</cbc:ID>", "<cbc:ID>StandardRated</cbc:ID>"), ("<cbc:ID>VAT</cbc:ID>", "<cbc:ID>63</cbc:ID>"))
    assert replaced(*pairs, document=danish) == set()
    wrong = dataclasses.replace(danish, changed={"TaxExclusiveAmount": Decimal(19), "PayableAmount": Decimal(100)})
    assert replaced(*pairs, document=wrong) == {"BR-CO-16"}


def test_other_rule_books_may_leave_terms_out_and_not_miscalculate():
    other = Document(customization="urn:example:1", type_code=None, due=None)
    missing = {"TaxInclusiveAmount": None, "LineExtensionAmount": None}
    assert codes(dataclasses.replace(other, changed=missing)) == set()
    assert codes(dataclasses.replace(other, changed={**missing, "PayableAmount": Decimal(100)})) == {"BR-CO-16"}
    rounded = {"TaxInclusiveAmount": Decimal("119.30"), "PayableAmount": Decimal("119.30")}
    assert codes(dataclasses.replace(other, rounding=Decimal("0.30"), changed=rounded)) == set()


def test_other_rule_books_may_show_the_rate_that_the_buyer_owes():
    line = Line(category="AE", rate=Decimal(5))
    untaxed = {"GroupTaxAmount": Decimal(0), "TaxAmount": Decimal(0), "PayableAmount": Decimal(100)}
    untaxed["TaxInclusiveAmount"] = Decimal(100)
    assert codes(Document(lines=(line,), customization="urn:example:1", changed=untaxed)) == set()
    assert {"BR-AE-05", "BR-CO-17"} <= codes(Document(lines=(line,), changed=untaxed))


def test_findings_are_listed_up_to_a_limit_and_then_counted():
    lines_ = tuple(Line(rate=Decimal(number)) for number in range(1, 60))
    findings = check(read_invoice(Document(lines=lines_, changed={"TaxableAmount": Decimal(1)}).bytes()))
    assert len(findings) == MAXIMUM_FINDINGS + 1
    assert findings[-1].code == "more"
