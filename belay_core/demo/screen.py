"""Everything the demo shows: a progress bar and a drawn table where somebody looks on, plain lines elsewhere.

What is shown may come from documents, and whoever wrote those may wish to drive the terminal of whoever reads them.
So text is made visible here, on its way out, whatever is handed in.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from belay_core.demo.text import visible

if TYPE_CHECKING:
    from rich.console import Console

_GAP: Final = "  "


class Screen:
    """Where the demo speaks to people; nothing it writes is for programs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = _console(stream) if stream.isatty() else None
        self._bar: Any = None
        self._bar_task: Any = None
        self._held: list[str] | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks on."""
        return self._stream.isatty()

    def say(self, line: str = "") -> None:
        """One line; while a question is open it waits until that is answered."""
        if self._held is not None:
            self._held.append(line)
        else:
            self._write(line)

    def progress(self, done: int, total: int) -> None:
        """How far the demo is; only where somebody looks on, and not while a question is open."""
        if self._console is None or self._held is not None:
            return
        if self._bar is None:
            self._bar = _bar(self._console)
            self._bar_task = self._bar.add_task("documents", total=total)
            self._bar.start()
        self._bar.update(self._bar_task, completed=done)

    def open_question(self, lines: Sequence[str]) -> None:
        """Show what is asked about; from now on other lines wait."""
        self.end_progress()
        for line in ("", *lines):
            self._write(line)
        self._held = []

    def prompt(self, question: str) -> None:
        """Ask for a line, which the terminal shows as it is typed."""
        self._stream.write(f"{visible(question)} ")
        self._stream.flush()

    def note(self, line: str) -> None:
        """A line about the open question."""
        self._write(line)

    def close_question(self) -> None:
        """The question is done with; what waited is shown."""
        held, self._held = self._held or [], None
        for line in held:
            self._write(line)

    def end(self) -> None:
        """Nothing moves any more: a question that is open stays unanswered, and the progress bar goes."""
        if self._held is not None:
            self._write("")
            self.close_question()
        self.end_progress()

    def end_progress(self) -> None:
        """Take the progress bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], narrow: Sequence[Sequence[str]]) -> None:
        """A table: drawn where somebody looks on, from ``narrow`` where the rows do not fit; else one line a row."""
        shown = [[visible(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(head, *shown, strict=True)]
        if self._console is None:
            for row in (head, *shown):
                self._write(_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        elif sum(widths) + len(_GAP) * (len(head) - 1) <= self._console.width:
            _draw(self._console, head, shown)
        else:
            _draw(self._console, head, [[visible(cell) for cell in row] for row in narrow])

    def _write(self, line: str) -> None:
        if self._bar is None or self._console is None:
            self._stream.write(f"{visible(line)}\n")
            self._stream.flush()
            return
        from rich.text import Text

        # Through the console the line comes to stand above the bar.
        self._console.print(Text(visible(line)), soft_wrap=True)


def _console(stream: TextIO) -> "Console | None":
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return Console(file=stream, markup=False, highlight=False, emoji=False)


def _bar(console: "Console") -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)


def _draw(console: "Console", head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        # Folded, never cut: an ellipsis would hide how a name ends.
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    console.print(drawn)
