"""Everything the command writes and asks; no other module of it touches the terminal.

What is written may come from a database, and whoever wrote it there may wish to drive the terminal of whoever reads
it. So text is made visible here, on its way out, whatever a command hands in.
"""

import json
import sys
from collections.abc import Sequence

import click

from belay_core.cli.visible_text import visible
from belay_core.records.attempt import JsonValue


def say(line: str = "") -> None:
    """Write one line to the standard output."""
    click.echo(visible(line))


def complain(line: str) -> None:
    """Write one line to the standard error."""
    click.echo(visible(line), err=True)


def emit(document: JsonValue) -> None:
    """Write one JSON document, as one line of ASCII without control characters."""
    click.echo(json.dumps(document, ensure_ascii=True, allow_nan=False))


def facts(pairs: Sequence[tuple[str, str | None]]) -> None:
    """Write names and what they stand for below each other; what is None is left out."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name.ljust(width)}  {value}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table: drawn to fit where a person looks on, else as aligned text of one line a row."""
    if not (sys.stdout.isatty() and _drawn(head, rows)):
        _aligned([head, *rows])


def may_ask() -> bool:
    """Whether somebody sits at both ends of the command."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: str) -> bool:
    """Ask for a yes; no is what an empty answer means."""
    return click.confirm(visible(question))


def _aligned(lines: Sequence[Sequence[str]]) -> None:
    shown = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        say("  ".join(cells).rstrip())


def _drawn(head: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        # Folded, never cut: an ellipsis would hide the end of an id or of an error.
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(visible(cell)) for cell in row))
    Console(markup=False, highlight=False, emoji=False).print(drawn)
    return True
