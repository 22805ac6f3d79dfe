"""Demos as processes of their own, at a terminal or not, and what they left behind, read with SQL of our own."""

import asyncio
import json
import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from belay_core.cli.invocation import run
from belay_core.client import Client
from belay_core.records.workflow_run import WorkflowRun
from belay_core.stores import open_stores
from belay_invoices.run_watch import state_of
from tests.examples.invoices.ubl import Document, Line

T = TypeVar("T")

SECONDS = 100
# A program whose terminal this is, so that Ctrl-C can be typed.
_AT_ITS_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BELAY_", "PYTEST_"))}
    return kept | {"COLUMNS": "100", "TERM": "xterm"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "belay_core.cli", *arguments]


def until(condition: Callable[[], T], seconds: float = 30) -> T:
    """Wait for a condition that another process brings about, and give what made it true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} seconds")


@dataclass(frozen=True)
class Demo:
    """How a demo ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def figures(self) -> dict[str, float]:
        """The one JSON object on the standard output."""
        assert self.out.count("\n") == 1, self
        figures: dict[str, float] = json.loads(self.out)
        return figures

    @property
    def said(self) -> str:
        """What it told people."""
        return self.err or self.out

    @property
    def folder(self) -> Path:
        """The folder it made."""
        found = re.search(r"^everything is in (.+)$", self.said, re.MULTILINE)
        assert found is not None, self
        return Path(found[1].strip())

    @property
    def url(self) -> str:
        """The database it made."""
        return f"sqlite:///{self.folder}/belay.db"

    @property
    def ledger(self) -> "list[tuple[str, str, int, str, str]]":
        """Step key, number, amount, cost centre and digest of all that was posted."""
        return ledger_of(self.folder)

    def commands(self, verb: str) -> list[list[str]]:
        """The commands of this kind that it offers, as arguments."""
        lines = [line.strip() for line in self.said.splitlines()]
        return [shlex.split(line)[1:] for line in lines if line.startswith(f"belay {verb} ")]


def ledger_of(folder: Path) -> list[tuple[str, str, int, str, str]]:
    with sqlite3.connect(folder / "ledger.db") as connection:
        return connection.execute(
            "SELECT step_key, number, amount_minor, cost_centre, digest FROM postings ORDER BY posting"
        ).fetchall()


def demo(*arguments: str) -> Demo:
    """Run a demo where nobody looks on."""
    done = subprocess.run(
        command("demo", *arguments),
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=environment(),
        timeout=SECONDS,
    )
    return Demo(done.returncode, done.stdout.decode(), done.stderr.decode())


class Terminal:
    """A demo at a terminal where somebody types; killed if the block is left before it ends."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._received = b""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        self._stack.callback(os.close, self._ours)
        os.set_blocking(self._ours, False)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _AT_ITS_TERMINAL, *command("demo", *self._arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(),
        )
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._stack.close()

    @property
    def shown(self) -> str:
        """All that the terminal has received."""
        try:
            while read := os.read(self._ours, 65_536):
                self._received += read
        except OSError:
            pass
        return self._received.decode().replace("\r\n", "\n")

    @property
    def folder(self) -> Path:
        """The folder the demo made."""
        self.waits_for("\nfrom another")
        return Demo(0, self.shown, "").folder

    def waits_for(self, text: str, times: int = 1) -> None:
        """Come back when the terminal has shown the text so often."""
        try:
            until(lambda: self.shown.count(text) >= times)
        except AssertionError:
            raise AssertionError(f"{text!r} was not shown {times} times in {self.shown}") from None

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def answer(self, question: str, line: str, times: int = 1) -> None:
        """Answer a question once it is asked for the n-th time."""
        self.waits_for(question, times)
        self.type(f"{line}\n")

    def ended(self) -> Demo:
        """How it ended."""
        until(lambda: (self.shown, self.process.poll())[1] is not None)
        return Demo(self.process.returncode, self.shown, "")


def cli(*arguments: str) -> int:
    """Run another command in this process."""
    return run(arguments)


def with_client(url: str, what: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Do something with a client over the database."""

    async def within() -> T:
        async with open_stores(url) as stores:
            return await what(Client(stores))

    return asyncio.run(within())


def states(url: str) -> dict[str, str]:
    """What each run of the database stands at, by the name of its document."""
    return {name: state_of(run) for name, run in runs(url).items()}


def runs(url: str) -> dict[str, WorkflowRun]:
    """The runs of the database, by the name of their document."""

    async def read(client: Client) -> dict[str, WorkflowRun]:
        found = [await client.get(run.run_id) for run in await client.list(limit=1000)]
        return {json.loads(run.input or "{}")["name"]: run for run in found}

    return with_client(url, read)


def work_until(url: str, condition: Callable[[], Any]) -> None:
    """Have ``belay worker`` go on with what there is until the condition holds."""
    arguments = ("worker", "--app", "belay_invoices.workflow:WORKFLOWS", "--database", url)
    worker = subprocess.Popen(command(*arguments), env=environment(), stdout=subprocess.DEVNULL)
    try:
        until(condition)
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0


def write(folder: Path, documents: Iterable[Document | bytes]) -> Path:
    """A folder of documents, named by their place."""
    folder.mkdir(exist_ok=True)
    for number, document in enumerate(documents):
        data = document if isinstance(document, bytes) else document.bytes()
        (folder / f"{number:03d}.xml").write_bytes(data)
    return folder


def small(number: int, price: int = 100) -> Document:
    """An invoice that nobody has to look at."""
    return Document(lines=(Line(price=Decimal(price), name="Hotel"),), number=f"N-{number}", supplier=f"House {number}")


def large(number: int) -> Document:
    """An invoice that somebody has to look at."""
    return small(number, 20_000)


def foreign(folder: Path, count: int = 30) -> Path:
    """Other invoices than the packaged ones, and what else lies in such a folder."""
    documents: list[Document] = []
    for number in range(count):
        lines = tuple(Line(price=Decimal(90 + 7 * each), quantity=Decimal(each + 1)) for each in range(number % 4 + 1))
        credit = number % 7 == 3
        documents.append(
            Document(
                lines=lines,
                number=f"F/{number}",
                supplier=f"Fremd & Söhne {number % 9}",
                supplier_vat=f"AT{number % 9:09d}",
                root="CreditNote" if credit else "Invoice",
                type_code="381" if credit else "380",
                currency=("EUR", "SEK", "CHF")[number % 3],
                changed={"PayableAmount": Decimal("1.23")} if number % 11 == 5 else {},
            )
        )
    write(folder, documents)
    (folder / "notes.txt").write_text("not an invoice")
    (folder / "scan.pdf").write_bytes(b"%PDF-1.7 nothing to read")
    (folder / "empty.xml").write_bytes(b"")
    (folder / "bomb.xml").write_bytes(b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>')
    (folder / "gone.xml").symlink_to(folder / "nowhere")
    (folder / ".hidden").write_bytes(b"never looked at")
    (folder / "older").mkdir()
    return folder


def digests(folder: Path) -> set[str]:
    """SHA-256 of every file in a folder and below."""
    return {sha256(each.read_bytes()).hexdigest() for each in folder.rglob("*") if each.is_file()}


def is_alive(pid: int) -> bool:
    """Whether the process goes on; one that has ended and that nobody has collected does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
