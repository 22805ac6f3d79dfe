"""The file: lines that are only ever added, each a transaction that happened as a whole."""

import fcntl
import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from zlib import crc32

from belay_core.errors import SchemaMismatch

FORMAT: Final = 1
"""The format of the lines; the first one names it."""
Entry: TypeAlias = list[Any]
"""What one transaction changed, as data."""


class Damaged(Exception):
    """A line that was once whole is not any more."""


class Log:
    """An open file; only one thread may use it.

    Under the file's lock nobody else writes, so whatever is behind the last whole line then was left by a process
    that died while it wrote: nobody was told that this had happened, and it is cut off.
    """

    def __init__(self, path: Path, apply: Callable[[Entry], None]) -> None:
        """Open or make the file and read it; ``apply`` is given each entry in its turn.

        Raises ``OSError``, ``Damaged``, ``SchemaMismatch``.
        """
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._apply = apply
        self._read = 0
        self._failed = False
        try:
            with self._locked():
                self._catch_up()
                if self._read == 0:
                    self._append([FORMAT])
            _sync_folder(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def close(self) -> None:
        """Close the file; the lock goes with it."""
        os.close(self._file)

    @contextmanager
    def transaction(self) -> Generator[Callable[[Entry], None]]:
        """Alone with the file, everything in it read: gives the call that adds an entry."""
        with self._locked():
            self._catch_up()
            yield self._add

    @contextmanager
    def _locked(self) -> Generator[None]:
        if self._failed:
            raise OSError("an earlier failure could not be undone")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        added = self._rest()
        if self._read == 0 and added:
            added = self._behind_head(added)
        *lines, torn = added.split(b"\n")
        for number, line in enumerate(lines, 1):
            entry = _entry(line)
            if entry is None:
                if number < len(lines) or torn:
                    raise Damaged
                # Blocks reach a disk in any order: the end of a line may be there without its middle.
                torn = line
                break
            self._apply(entry)
            self._read += len(line) + 1
        if torn:
            os.ftruncate(self._file, self._read)
        if added:
            # Whoever wrote this may have been killed before it was on the disk, and from here on it is acted upon.
            os.fsync(self._file)

    def _behind_head(self, added: bytes) -> bytes:
        """What follows the first line; nothing in a file of somebody else's is ever cut off."""
        head = _line([FORMAT])
        if not added.startswith(head[: len(added)]):
            raise SchemaMismatch("foreign", "the file is no log of belay-jsonl, or one of another format")
        if len(added) < len(head):
            return added
        self._read = len(head)
        return added[len(head) :]

    def _rest(self) -> bytes:
        size = os.fstat(self._file).st_size
        if size < self._read:
            raise Damaged
        parts: list[bytes] = []
        while size > self._read + sum(map(len, parts)):
            parts.append(os.pread(self._file, size - self._read, self._read + sum(map(len, parts))))
        return b"".join(parts)

    def _add(self, entry: Entry) -> None:
        self._append(entry)
        self._apply(entry)

    def _append(self, entry: Entry) -> None:
        line = _line(entry)
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            os.fsync(self._file)
        except OSError:
            self._undo()
            raise
        self._read += len(line)

    def _undo(self) -> None:
        """Take back a line of which nobody knows how much has reached the disk."""
        self._failed = True
        os.ftruncate(self._file, self._read)
        os.fsync(self._file)
        self._failed = False


def _line(entry: Entry) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode("ascii")
    return b'["%08x",%s]\n' % (crc32(text), text)


def _entry(line: bytes) -> Entry | None:
    """The entry of a line, or None where its checksum is another's."""
    text = line[12:-1]
    if line != b'["%08x",%s]' % (crc32(text), text):
        return None
    entry: Entry = json.loads(text)
    return entry


def _sync_folder(folder: Path) -> None:
    """Make the name of the file last, whoever made it; its own fsync keeps only what is in it."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
