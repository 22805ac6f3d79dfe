"""Documents in folders: the inbox, where each becomes a run, and the archive, where each is filed when it is posted."""

import hashlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from belay_core import InvalidInput
from belay_invoices.booking import Task, uri_of
from belay_invoices.invoice import Finding, Invoice, UnreadableInvoice
from belay_invoices.text import one_line, slug
from belay_invoices.ubl_reader import read_invoice


@dataclass(frozen=True, slots=True)
class Inbox:
    """A folder, the documents in it by name, and how many folders in it are left out."""

    folder: Path
    documents: tuple[Path, ...]
    folders: int


def samples() -> Path:
    """The packaged documents."""
    return Path(str(files("belay_invoices"))) / "samples"


def read_inbox(folder: Path) -> Inbox:
    """Everything in the folder that is no folder and not hidden, whatever its name says it is.

    What is no invoice becomes a run too, and fails with the reason: nothing is left out silently.

    Raises:
        InvalidInput: The folder cannot be read, or holds no document.
    """
    try:
        found = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
        documents = tuple(each for each in found if not each.is_dir())
    except OSError as error:
        raise InvalidInput("inbox", f"the folder cannot be read: {error.strerror or type(error).__name__}") from None
    if not documents:
        raise InvalidInput("inbox", "there is no document in this folder")
    return Inbox(folder, documents, len(found) - len(documents))


def tasks_for(inbox: Inbox, ledger: Path, filed: Path, *, batch: str, step_ms: int) -> list[Task]:
    """A task for each document. Reads all of them, to see which come twice."""
    duplicates = find_duplicates(inbox.documents)
    return [
        Task(
            document=uri_of(document),
            name=one_line(document.name),
            ledger=uri_of(ledger),
            filed=uri_of(filed),
            batch=batch,
            duplicate_of=one_line(duplicates[document].name) if document in duplicates else None,
            step_ms=step_ms,
        )
        for document in inbox.documents
    ]


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


class FilingRefused(Exception):
    """A document is not filed: it has changed since it was read, or its place is taken by something else."""


def filed_name(invoice: Invoice) -> Path:
    """Where a document belongs below the folder: by month, then supplier, number and digest.

    The parts are letters, digits and hyphens of our own choosing, so no number leads out of the folder; the
    digest keeps apart what differs only in characters that a file name cannot have.
    """
    month = f"{invoice.issue_date.year:04d}-{invoice.issue_date.month:02d}"
    name = f"{slug(invoice.supplier.name)}-{slug(invoice.number)}-{invoice.digest[:8]}.xml"
    return Path(month, name)


def file_document(source: Path, folder: Path, invoice: Invoice) -> Path:
    """Copies the document to its place and gives the path below the folder. Filing it again changes nothing.

    The copy appears whole or not at all, and is on the disk when this returns.

    Raises:
        FilingRefused: The file is no longer what was read as this invoice, or another document has its name.
    """
    data = source.read_bytes()
    if hashlib.sha256(data).hexdigest() != invoice.digest:
        raise FilingRefused("the file has changed since it was read")
    relative = filed_name(invoice)
    target = folder / relative
    if target.exists():
        if target.read_bytes() != data:
            raise FilingRefused("another document is filed under the name of this one")
        return relative
    target.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(target, data)
    return relative


def _write_whole(target: Path, data: bytes) -> None:
    # A name of its own for each try: two tries at once must not write into one file.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
