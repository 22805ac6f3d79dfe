"""Whatever the bytes are, reading gives an invoice or its one error, and checking gives findings."""

import encodings.aliases
import random
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from belay_invoices.checks import check
from belay_invoices.documents import filed_name
from belay_invoices.invoice import Finding, Invoice, UnreadableInvoice
from belay_invoices.policy import assign
from belay_invoices.ubl_reader import read_invoice
from tests.examples.invoices.ubl import UBL, Document, Extra, Line

SAMPLES = sorted(path.read_bytes() for path in (Path(str(files("belay_invoices"))) / "samples").iterdir())
INVOICES = TypeAdapter(Invoice)
FINDINGS = TypeAdapter(list[Finding])
NAMES = [
    "cbc:ID", "cbc:IssueDate", "cbc:DueDate", "cbc:DocumentCurrencyCode", "cbc:TaxCurrencyCode", "cbc:Note",
    "cbc:InvoiceTypeCode", "cbc:CustomizationID", "cbc:PayableAmount", "cbc:TaxAmount", "cbc:TaxableAmount",
    "cbc:Percent", "cbc:Amount", "cbc:ChargeIndicator", "cbc:LineExtensionAmount", "cbc:InvoicedQuantity",
    "cbc:PriceAmount", "cbc:BaseQuantity", "cbc:Name", "cbc:RegistrationName", "cbc:CompanyID",
    "cbc:TaxExclusiveAmount", "cbc:TaxInclusiveAmount", "cbc:PrepaidAmount", "cbc:PaidAmount",
    "cac:AccountingSupplierParty", "cac:Party", "cac:PartyLegalEntity", "cac:LegalMonetaryTotal", "cac:TaxTotal",
    "cac:TaxSubtotal", "cac:TaxCategory", "cac:TaxScheme", "cac:InvoiceLine", "cac:Item", "cac:Price",
    "cac:ClassifiedTaxCategory", "cac:AllowanceCharge", "cac:PrepaidPayment", "cac:PaymentMeans",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20),
    st.sampled_from(["EUR", "JPY", "2026-01-31", "0001-01-01", "9999-12-31", "true", "S", "E", "381", "OIOUBL-2.1"]),
    st.decimals(allow_nan=True, allow_infinity=True).map(str),
    st.from_regex(r"\A-?[0-9]{1,16}(\.[0-9]{1,31})?\Z"),
)


def invoice_or_message(data: bytes) -> Invoice | str:
    try:
        return read_invoice(data)
    except UnreadableInvoice as error:
        return str(error)


def survives(data: bytes) -> None:
    """Reads, and does with the result what the demo does."""
    read = invoice_or_message(data)
    if isinstance(read, str):
        assert read.isprintable()
        assert len(read) < 400
        return
    invoice, findings = read, check(read)
    assert INVOICES.validate_json(INVOICES.dump_json(invoice)) == invoice
    assert FINDINGS.validate_json(FINDINGS.dump_json(findings)) == findings
    assert all(finding.message.isprintable() for finding in findings)
    assert assign(invoice).cost_centre
    name = filed_name(invoice)
    assert len(name.parts) == 2
    assert ".." not in str(name)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"<", b"\xef\xbb\xbf<?xml ", b"\xff\xfe<\x00", b"<?xml version='1.0'"]),
)
def test_bytes(data: bytes, start: bytes):
    survives(start + data)


@pytest.mark.parametrize("seed", range(8))
def test_mutations_of_samples(seed: int):
    chance = random.Random(seed)  # noqa: S311 - the same mutations every time
    for _ in range(80):
        data = bytearray(chance.choice(SAMPLES))
        for _ in range(chance.choice([1, 1, 2, 5, 20])):
            _mutate(data, chance)
        survives(bytes(data))


def _mutate(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    end = min(len(data), start + chance.choice([1, 2, 8, 60, 400]))
    match chance.randrange(6):
        case 0:
            data[start : start + 1] = bytes([chance.randrange(256)])
        case 1:
            del data[start:end]
        case 2:
            data[start:start] = data[start:end]
        case 3:
            data[start:start] = chance.choice([b"\x00", b"<!--", b"]]>", b"&#0;", b"&lt;", b"\xc2\x9b", b"<![CDATA["])
        case 4:
            digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
            if digits:
                data[chance.choice(digits)] = chance.choice(b"0123456789.-eE,")
        case _:
            other = chance.randrange(len(data) + 1)
            data[start:end] = data[other : other + 60]


def trees() -> st.SearchStrategy[str]:
    leaves = TEXTS.map(lambda text: escape("".join(c for c in text if c.isprintable() or c == "\n")))
    return st.recursive(
        leaves,
        lambda inner: st.lists(
            st.tuples(st.sampled_from(NAMES), inner).map(lambda pair: f"<{pair[0]}>{pair[1]}</{pair[0]}>"), max_size=6
        ).map("".join),
        max_leaves=30,
    )


@settings(max_examples=80, deadline=None)
@given(trees(), trees(), st.sampled_from(["Invoice", "CreditNote"]))
def test_documents_of_random_structure(before: str, after: str, root: str):
    inner = Document().xml()
    inner = inner[inner.index("<cbc:") : inner.rindex("</Invoice>")]
    namespaces = (
        f'xmlns="{UBL}{root}-2" xmlns:cac="{UBL}CommonAggregateComponents-2" xmlns:cbc="{UBL}CommonBasicComponents-2"'
    )
    for body in (before + inner + after, before + after):
        survives(f"<{root} {namespaces}>{body}</{root}>".encode())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_documents_with_random_values(data: st.DataObject):
    xml = Document(lines=(Line(), Line(rate=Decimal(7))), extras=(Extra(Decimal(3)),), prepaid=Decimal(1)).xml()
    for _ in range(data.draw(st.integers(1, 4))):
        starts = [place for place in range(len(xml)) if xml[place] == ">" and xml[place + 1 : place + 2] not in "<\n"]
        start = data.draw(st.sampled_from(starts)) + 1
        text = "".join(c for c in data.draw(TEXTS) if c.isprintable())
        xml = xml[:start] + escape(text) + xml[xml.index("<", start) :]
    survives(xml.encode())


@pytest.mark.parametrize("name", sorted({*encodings.aliases.aliases, *encodings.aliases.aliases.values(), "undefined"}))
def test_any_declared_encoding(name: str):
    survives(f'<?xml version="1.0" encoding="{name}"?>{Document().xml()}'.encode())


def test_a_bomb_costs_no_memory_and_no_time():
    bomb = b'<!DOCTYPE a [<!ENTITY a0 "ha">'
    for level in range(1, 30):
        bomb += b'<!ENTITY a%d "%s">' % (level, b"&a%d;" % (level - 1) * 10)
    with pytest.raises(UnreadableInvoice) as caught:
        read_invoice(bomb + b"]><a>&a29;</a>")
    assert caught.value.code == "hostile_xml"


def test_errors_never_repeat_the_document():
    marker = "SPEAKFRIEND"
    documents = [
        f"<a>&{marker};</a>",
        f"<{marker}/>",
        f"<a><{marker}></a>",
        f'<{marker} xmlns="urn:{marker}"/>',
        f'<?xml version="1.0" encoding="{marker}"?><a/>',
        f"<!DOCTYPE {marker}><a/>",
        *(Document().xml().replace(old, f">{marker}<") for old in (">EUR<", ">119.00<", ">2026-03-31<", ">100.00<")),
        Document(number=marker * 50).xml(),
    ]
    for document in documents:
        with pytest.raises(UnreadableInvoice) as caught:
            read_invoice(document.encode())
        assert marker not in str(caught.value)
