"""The ledger: a SQLite file to which postings are added, and nothing is ever taken away.

It stands for an external system: it does not know runs, and accepts what it already has. Posting the same thing twice
makes two rows, so ``audit`` detects a workflow that did it.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

from belay_invoices.invoice import Finding, Invoice

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


_COLUMNS = ", ".join(["step_key", *(field.name for field in fields(Entry))])


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
    """What was posted how often, as the ledger has it."""

    postings: int
    posted_twice: tuple[str, ...]
    """Step keys with more than one row."""
    documents_twice: tuple[str, ...]
    """Digests of documents with more than one row, whoever posted them."""
    balances: tuple[Balance, ...]


def post(ledger: Path, step_key: str, entry: Entry) -> int:
    """Adds a posting and gives its number. Calling it again adds another one: it is not idempotent."""
    values = (step_key, *astuple(entry))
    with _transaction(ledger) as connection:
        marks = ", ".join("?" * len(values))
        cursor = connection.execute(f"INSERT INTO postings ({_COLUMNS}) VALUES ({marks})", values)
        return cursor.lastrowid or 0


def postings(ledger: Path) -> list[Posting]:
    """Everything that was posted, in order."""
    with _transaction(ledger) as connection:
        rows = connection.execute(f"SELECT posting, {_COLUMNS} FROM postings ORDER BY posting").fetchall()
    return [Posting(posting, step_key, Entry(*entry)) for posting, step_key, *entry in rows]


def find_duplicates(ledger: Path, invoice: Invoice, *, except_key: str) -> list[Finding]:
    """A finding for each earlier posting of this kind and number by this supplier, except those of one step key."""
    keys = invoice.document_keys
    marks = ", ".join("?" * len(keys))
    query = f"SELECT posting FROM postings WHERE document_key IN ({marks}) AND step_key <> ? ORDER BY posting"
    with _transaction(ledger) as connection:
        found = connection.execute(query, (*keys, except_key)).fetchall()
    message = "This supplier's invoice of this number was posted before, as posting {}."
    return [Finding("duplicate", "BT-1", message.format(posting)) for (posting,) in found]


def audit(ledger: Path) -> Audit:
    """Counts the postings, and finds what was posted more than once."""
    with _transaction(ledger) as connection:
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


@contextmanager
def _transaction(ledger: Path) -> Generator[sqlite3.Connection]:
    """One transaction on the ledger, which is made if it does not exist."""
    ledger.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(ledger, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        # IMMEDIATE: a transaction that reads before it writes fails at once, whatever the timeout, if another one
        # has written in between.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_SCHEMA)
        yield connection
        connection.execute("COMMIT")
    finally:
        # Closing rolls back what was not committed.
        connection.close()
