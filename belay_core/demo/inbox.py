"""The inbox: a folder of documents, each of which becomes a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from belay_core.demo.booking import Task, uri_of
from belay_core.demo.duplicates import find_duplicates
from belay_core.demo.text import one_line
from belay_core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Inbox:
    """A folder, what is in it by name, and how many folders in it are left out."""

    folder: Path
    documents: tuple[Path, ...]
    folders: int


def samples() -> Path:
    """The packaged documents."""
    return Path(str(files("belay_core.demo"))) / "samples"


def look_into(folder: Path) -> Inbox:
    """Everything in the folder that is no folder and not hidden, whatever its name promises.

    What is no invoice becomes a run too, and fails with the reason: nothing is passed over in silence.

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


def tasks_for(inbox: Inbox, ledger: Path, filed: Path, *, batch: str, moment_ms: int) -> list[Task]:
    """A task for each document. Reads all of them, to see which come twice."""
    duplicates: Mapping[Path, Path] = find_duplicates(inbox.documents)
    return [
        Task(
            document=uri_of(document),
            name=one_line(document.name),
            ledger=uri_of(ledger),
            filed=uri_of(filed),
            batch=batch,
            duplicate_of=one_line(duplicates[document].name) if document in duplicates else None,
            moment_ms=moment_ms,
        )
        for document in inbox.documents
    ]
