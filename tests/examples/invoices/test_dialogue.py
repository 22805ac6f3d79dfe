"""The conversation about a booking, without a terminal."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from belay_invoices.approver import QUESTION, Answer, ask_about, description
from belay_invoices.booking import Booking
from belay_invoices.invoice import Kind

BOOKING = Booking(
    document="a.xml",
    kind=Kind.CREDIT_NOTE,
    number="7",
    supplier="S",
    supplier_ids=(),
    buyer=None,
    issue_date=date(2026, 1, 2),
    due_date=None,
    items=(),
    amount=Decimal(-30_000),
    currency="JPY",
    cost_centre="9900",
    assigned_by="no rule fits",
    asks=("because",),
    document_key="k",
    digest="d",
)


def talk(*lines: str) -> tuple[Answer | None, list[tuple[str, ...]]]:
    """What is decided once these lines were typed, and all that was asked."""
    conversation = ask_about(BOOKING)
    asked = [next(conversation)]
    for line in lines:
        try:
            asked.append(conversation.send(line))
        except StopIteration as ended:
            return ended.value, asked
    return None, asked


@pytest.mark.parametrize(
    ("lines", "decision"),
    [
        (["a"], Answer("approve")),
        ([" Approve "], Answer("approve")),
        (["s"], Answer("skip")),
        (["r", ""], Answer("reject")),
        (["r", " no money "], Answer("reject", reason="no money")),
        (["r", "x" * 5000], Answer("reject", reason="x" * 1000)),
        (["", "yes", "a"], Answer("approve")),
        (["e", "", "", "y"], Answer("approve", BOOKING)),
        (["e", "2100", "", "y"], Answer("approve", replace(BOOKING, cost_centre="2100"))),
        (["e", "", "-100", "yes"], Answer("approve", replace(BOOKING, amount=Decimal(-100)))),
        (["e", "1", "2100", "100", "-30001", "-0.5", "nan", "1" * 200, "inf", "-1", "n", "s"], Answer("skip")),
        (["e", "", "", "", "a"], Answer("approve")),
        (["y"], None),
        (["e"], None),
    ],
)
def test_lines_make_a_decision(lines: list[str], decision: Answer | None):
    assert talk(*lines)[0] == decision


def test_what_does_not_fit_is_asked_again_with_the_reason():
    _, asked = talk("x", "e", "1", "2100", "100", "abc", "-0.5", "-1")
    assert asked[0] == (QUESTION,)
    assert asked[1] == ("a, e, r or s, please", QUESTION)
    assert asked[2][0] == "  1100  Premises and energy"
    assert asked[3][0].startswith("There is no such cost centre")
    assert asked[4] == ("amount [-30000.00 JPY]:",)
    assert asked[5][0].startswith("The amount must have the sign")
    assert asked[6][0].startswith("That is no amount")
    assert asked[7][0].startswith("The amount has more decimals")
    assert asked[8] == (
        "cost centre 2100 Information technology, amount -1.00 JPY",
        "approve this? [y/n]",
    )


def test_everything_is_shown_and_the_objection_too():
    lines = description(replace(BOOKING, objection="no"))
    assert lines == [
        "a.xml",
        "  credit note 7 of 2026-01-02",
        "  from         S",
        "  to           nobody named",
        "  for          no items",
        "  amount       -30000.00 JPY",
        "  cost centre  9900 To be assigned, by the rule: no rule fits",
        "  asked as     because",
        "  asked again  the edit before this was refused: no",
    ]
