"""Filing a document: a copy in a folder, under a name that is safe whatever the document says."""

import hashlib
import os
import secrets
from pathlib import Path

from belay_core.demo.invoice import Invoice
from belay_core.demo.text import slug


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
