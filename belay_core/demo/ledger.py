"""The ledger: a SQLite file to which postings are added, and nothing is ever taken away.

It stands for a system outside: it has no idea of runs, and does not refuse what it has already. Posting the same
thing twice makes two rows, so that a workflow which did it would be found out by ``audit``.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from belay_core.demo.currencies import minor_units
from belay_core.demo.invoice import Invoice

BUSY_TIMEOUT: Final = 30.0
"""Seconds to wait for another process that is posting."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS postings (
    posting INTEGER PRIMARY KEY AUTOINCREMENT,
    step_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    document_key TEXT NOT NULL,
    supplier TEXT NOT NULL,
    number TEXT NOT NULL,
    issue_date TEXT NOT NULL,
    currency TEXT NOT NULL,
    amount_minor INTEGER NOT NULL,
    cost_centre TEXT NOT NULL,
    digest TEXT NOT NULL
)
"""
_COLUMNS = "step_key, kind, document_key, supplier, number, issue_date, currency, amount_minor, cost_centre, digest"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is posted: one document, its signed amount in the currency's smallest unit, and who bears it."""

    kind: str
    document_key: str
    """What names the document in the world: kind, number, and who sent it."""
    supplier: str
    number: str
    issue_date: str
    currency: str
    amount_minor: int
    """Negative for a credit note."""
    cost_centre: str
    digest: str
    """SHA-256 of the document."""


@dataclass(frozen=True, slots=True)
class Posting:
    """A row of the ledger."""

    posting: int
    step_key: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Balance:
    """What the postings in one currency come to."""

    currency: str
    postings: int
    amount_minor: int


@dataclass(frozen=True, slots=True)
class Audit:
    """What the ledger itself says about how often things were posted."""

    postings: int
    posted_twice: tuple[str, ...]
    """Step keys with more than one row."""
    documents_twice: tuple[str, ...]
    """Digests of documents with more than one row, whoever posted them."""
    balances: tuple[Balance, ...]


def entry_for(invoice: Invoice, cost_centre: str) -> Entry:
    """What to post for an invoice.

    Raises:
        InexactAmount: The amount due is no whole number of the currency's smallest unit.
    """
    return Entry(
        kind=invoice.kind.value,
        document_key=invoice.document_keys[0],
        supplier=invoice.supplier.name,
        number=invoice.number,
        issue_date=invoice.issue_date.isoformat(),
        currency=invoice.currency,
        amount_minor=minor_units(invoice.signed_payable, invoice.currency),
        cost_centre=cost_centre,
        digest=invoice.digest,
    )


def post(ledger: Path, step_key: str, entry: Entry) -> int:
    """Adds a posting and gives its number. Calling it again adds another one: it is not idempotent."""
    values = (
        step_key,
        entry.kind,
        entry.document_key,
        entry.supplier,
        entry.number,
        entry.issue_date,
        entry.currency,
        entry.amount_minor,
        entry.cost_centre,
        entry.digest,
    )
    with _opened(ledger) as connection:
        places = ", ".join("?" * len(values))
        statement = f"INSERT INTO postings ({_COLUMNS}) VALUES ({places})"  # noqa: S608 - names and marks only
        cursor = connection.execute(statement, values)
        return cursor.lastrowid or 0


def postings(ledger: Path) -> tuple[Posting, ...]:
    """Everything that was posted, in order."""
    return _select(ledger, "ORDER BY posting", ())


def find(ledger: Path, step_key: str) -> tuple[Posting, ...]:
    """The postings made under a step key: none or one, and two where something went wrong."""
    return _select(ledger, "WHERE step_key = ? ORDER BY posting", (step_key,))


def find_document(ledger: Path, invoice: Invoice, *, but_not: str = "") -> tuple[Posting, ...]:
    """Earlier postings of this kind and number by the same supplier, except those under one step key."""
    keys = invoice.document_keys
    marks = ", ".join("?" * len(keys))
    return _select(ledger, f"WHERE document_key IN ({marks}) AND step_key <> ? ORDER BY posting", (*keys, but_not))


def audit(ledger: Path) -> Audit:
    """Counts the postings, and finds what was posted more than once."""
    with _opened(ledger) as connection:
        count: int = connection.execute("SELECT count(*) FROM postings").fetchone()[0]
        steps = connection.execute(
            "SELECT step_key FROM postings GROUP BY step_key HAVING count(*) > 1 ORDER BY step_key"
        ).fetchall()
        documents = connection.execute(
            "SELECT digest FROM postings GROUP BY digest HAVING count(*) > 1 ORDER BY digest"
        ).fetchall()
        balances = connection.execute(
            "SELECT currency, count(*), sum(amount_minor) FROM postings GROUP BY currency ORDER BY currency"
        ).fetchall()
    return Audit(
        postings=count,
        posted_twice=tuple(step_key for (step_key,) in steps),
        documents_twice=tuple(digest for (digest,) in documents),
        balances=tuple(Balance(currency, number, amount) for currency, number, amount in balances),
    )


def _select(ledger: Path, condition: str, values: tuple[str, ...]) -> tuple[Posting, ...]:
    with _opened(ledger) as connection:
        rows = connection.execute(
            f"SELECT posting, {_COLUMNS} FROM postings {condition}",  # noqa: S608 - names and marks only
            values,
        ).fetchall()
    return tuple(Posting(row[0], row[1], Entry(*row[2:])) for row in rows)


@contextmanager
def _opened(ledger: Path) -> Generator[sqlite3.Connection]:
    """The ledger in one transaction: all of it is there afterwards, or nothing."""
    ledger.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(ledger, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        # Immediate, because a transaction that reads before it writes is refused at once when another one
        # has written in between, whatever the time-out.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_SCHEMA)
        yield connection
        connection.execute("COMMIT")
    finally:
        # Closing rolls back what was not committed.
        connection.close()
