"""Finding invoices that were sent twice."""

from collections.abc import Iterable
from pathlib import Path

from belay_core.demo.invoice import Finding
from belay_core.demo.ledger import Posting
from belay_core.demo.reading import read_invoice
from belay_core.demo.unreadable import UnreadableInvoice


def find_duplicates(paths: Iterable[Path]) -> dict[Path, Path]:
    """Each file that repeats an earlier one's invoice, and that earlier file.

    The same invoice is the same kind of document with the same number from the same supplier, whatever else the
    files say. Earlier is by path, so the answer is the same in whatever order and however often it is asked.
    Files that cannot be read repeat nothing.
    """
    firsts: dict[str, Path] = {}
    repeated: dict[Path, Path] = {}
    for path in sorted(set(paths)):
        try:
            keys = read_invoice(path).document_keys
        except (UnreadableInvoice, OSError):
            continue
        first = next((firsts[key] for key in keys if key in firsts), None)
        if first is not None:
            repeated[path] = first
        for key in keys:
            firsts.setdefault(key, first or path)
    return repeated


def duplicate_in_inbox(first: str) -> Finding:
    """The finding for a file that repeats an earlier one of the same inbox; ``first`` is that file's name."""
    return Finding("duplicate", "BT-1", f"This supplier's invoice of this number is also in {first}.")


def duplicate_in_ledger(postings: Iterable[Posting]) -> list[Finding]:
    """The findings for an invoice that was posted before, under another step key."""
    return [
        Finding(
            "duplicate",
            "BT-1",
            f"This supplier's invoice of this number was posted before, as posting {posting.posting}.",
        )
        for posting in postings
    ]
