"""All output and prompts of the command; no other module of it uses the terminal.

Text may come from a database and contain control sequences that would drive the reader's terminal. So all text is
escaped here (``visible``), whatever a command passes.
"""

import json
import sys
from collections.abc import Sequence

import click

from belay_core.cli.visible_text import visible
from belay_core.records.attempt import JsonValue


def write_line(line: str = "") -> None:
    """Write one line to the standard output."""
    click.echo(visible(line))


def write_error(line: str) -> None:
    """Write one line to the standard error."""
    click.echo(visible(line), err=True)


def write_json(document: JsonValue) -> None:
    """Write one JSON document, as one line of ASCII without control characters."""
    click.echo(json.dumps(document, ensure_ascii=True, allow_nan=False))


def write_fields(pairs: Sequence[tuple[str, str | None]]) -> None:
    """Write names and values in two columns; a value that is None is left out."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        write_line(f"{name.ljust(width)}  {value}")


def write_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table: fitted to the width of a terminal, else as aligned text, one line a row."""
    if not (sys.stdout.isatty() and _write_drawn(head, rows)):
        _write_aligned([head, *rows])


def is_interactive() -> bool:
    """Whether both standard input and standard output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask_yes(question: str) -> bool:
    """Ask for a yes; an empty answer means no."""
    return click.confirm(visible(question))


def _write_aligned(lines: Sequence[Sequence[str]]) -> None:
    shown = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        write_line("  ".join(cells).rstrip())


def _write_drawn(head: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        # Folded, never shortened: an ellipsis would hide the end of an id or of an error.
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(visible(cell)) for cell in row))
    Console(markup=False, highlight=False, emoji=False).print(drawn)
    return True
