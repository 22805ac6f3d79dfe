"""The terminal: what the demo writes to it, and the lines that somebody types.

Text that is written may come from a document, whose author must not control the terminal of the person who reads it.
So everything is made visible here, on its way out.
"""

import asyncio
import os
import termios
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from belay_invoices.text import visible

_GAP: Final = "  "
_READ_BYTES: Final = 4_096
_MAX_LINE_BYTES: Final = 65_536


class Screen:
    """Writes to people: a progress bar and a drawn table at a terminal, plain lines elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        """Whether somebody reads along."""
        self._console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._bar: Progress | None = None
        self._held: list[str] | None = None

    def write(self, line: str = "") -> None:
        """Write one line; while a question is open it is held until the question is closed."""
        if self._held is not None:
            self._held.append(line)
        else:
            self.write_now(line)

    def write_now(self, line: str) -> None:
        """Write one line, even while a question is open."""
        if self._bar is None:
            self._stream.write(f"{visible(line)}\n")
            self._stream.flush()
        else:
            # The console writes the line above the bar.
            self._console.print(Text(visible(line)), soft_wrap=True)

    def show_progress(self, done: int, total: int) -> None:
        """Show how many documents are done; only at a terminal, and not while a question is open."""
        if not self.is_terminal or self._held is not None:
            return
        if self._bar is None:
            columns = (TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(
                *columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._bar.add_task("documents", total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)

    def open_question(self, lines: Sequence[str]) -> None:
        """Show what is asked about, and hold other lines from now on."""
        self._remove_bar()
        for line in ("", *lines):
            self.write_now(line)
        self._held = []

    def prompt(self, question: str) -> None:
        """Ask for a line."""
        self._stream.write(f"{visible(question)} ")
        self._stream.flush()

    def close_question(self) -> None:
        """Write the lines that were held."""
        held, self._held = self._held or [], None
        for line in held:
            self.write_now(line)

    def close(self) -> None:
        """Close an open question and remove the progress bar."""
        if self._held is not None:
            self.write_now("")
            self.close_question()
        self._remove_bar()

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], narrow: Sequence[Sequence[str]]) -> None:
        """A table: drawn at a terminal, from ``narrow`` where the rows are too wide for it; else one line a row."""
        cells = [[visible(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        if not self.is_terminal:
            for row in (head, *cells):
                self.write_now(_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
            return
        if sum(widths) + len(_GAP) * (len(head) - 1) > self._console.width:
            cells = [[visible(cell) for cell in row] for row in narrow]
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for name in head:
            # Folded, not cut: an ellipsis would hide how a name ends.
            drawn.add_column(name, overflow="fold")
        for row in cells:
            drawn.add_row(*map(Text, row))
        self._console.print(drawn)

    def _remove_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Keyboard:
    """Reads lines of a terminal while the event loop does other things, from entering it until leaving it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._partial = b""
        self._lines: deque[str] = deque()
        self.is_closed = False
        """Whether no further line will come."""

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._file, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def discard(self) -> None:
        """Drop what was typed so far: it cannot be an answer to a question that is only asked now."""
        self._partial = b""
        self._lines.clear()
        with suppress(termios.error):
            # The terminal itself keeps a line that has no end yet.
            termios.tcflush(self._file, termios.TCIFLUSH)

    def next_line(self) -> str | None:
        """The next line, if there is one."""
        return self._lines.popleft() if self._lines else None

    def _read(self) -> None:
        try:
            read = os.read(self._file, _READ_BYTES)
        except OSError:
            read = b""
        if not read:
            self._close()
            return
        *whole, self._partial = (self._partial + read).split(b"\n")
        self._partial = self._partial[-_MAX_LINE_BYTES:]
        self._lines.extend(line.decode(errors="replace") for line in whole)

    def _close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().remove_reader(self._file)
