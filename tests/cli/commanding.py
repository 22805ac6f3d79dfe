"""The command, in this process and as a process of its own, over real files."""

import asyncio
import importlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from belay_core.cli.invocation import run
from belay_core.client import Client
from belay_core.stores import Stores, open_stores
from belay_core.worker import Worker
from belay_testing.drive import run_ready

T = TypeVar("T")

APPS = Path(__file__).parent / "apps"
APP = "shop:app"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on the standard output; nothing else may be there, nor on the standard error."""
        assert self.err == ""
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1
        return json.loads(self.out)


class Cli:
    """Runs commands over one database."""

    def __init__(self, url: str, capture: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capture = capture

    def __call__(self, *arguments: str) -> Ended:
        """Run a command in this process."""
        self._capture.readouterr()
        code = run(arguments)
        out, err = self._capture.readouterr()
        return Ended(code, out, err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with ``--json``, and read what it wrote."""
        ended = self(arguments[0], "--json", *arguments[1:])
        assert ended.code == code, ended
        return ended.document

    def start(self, workflow: str, given: object = None, *, run_id: str | None = None) -> str:
        """Start a run, and give its id."""
        text = [] if given is None else [json.dumps(given)]
        identity = [] if run_id is None else ["--run-id", run_id]
        started = self.json("start", *identity, "--", workflow, *text)
        return str(started["run_id"])

    def started(self, workflow: str, given: object = None, *, run_id: str | None = None) -> str:
        """Start a run and have a worker go on with it as far as it goes."""
        found = self.start(workflow, given, run_id=run_id)
        self.work()
        return found

    def work(self) -> None:
        """Have a worker do all there is to do."""

        async def worked(stores: Stores) -> None:
            async with Worker(stores, shop().app, background=False) as worker:
                await run_ready(worker)

        self.with_stores(worked)

    def with_stores(self, what: Callable[[Stores], Any]) -> Any:
        """Do something with the stores behind the database."""

        async def within() -> Any:
            async with open_stores(self.url) as stores:
                return await what(stores)

        return asyncio.run(within())

    def with_client(self, what: Callable[[Client], Any]) -> Any:
        """Do something with a client over the database."""
        return self.with_stores(lambda stores: what(Client(stores)))


def shop() -> ModuleType:
    """The module of the app, loaded as the command loads it."""
    return importlib.import_module("shop")


def command(*arguments: str) -> list[str]:
    """The command line of ``belay`` as a process of its own."""
    return [sys.executable, "-m", "belay_core.cli", *arguments]


def shell(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ended:
    """Run a command as a process of its own."""
    done = subprocess.run(
        command(*arguments), check=False, capture_output=True, input=stdin, env=os.environ | (env or {}), timeout=30
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


class Running:
    """A worker that runs as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            command("worker", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        """The line that says it is ready; empty where it ended instead."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> Ended:
        """Wait for the end of the process."""
        out, err = self.process.communicate(timeout=20)
        return Ended(self.process.returncode, out, err)


def until(condition: Callable[[], T], seconds: float = 20) -> T:
    """Wait for a condition that another process brings about, and give what made it true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} seconds")


def at_terminal(arguments: Sequence[str], typed: str = "", columns: int = 100) -> tuple[int, str]:
    """Run a command at a terminal where somebody types; its exit code and all that the terminal received."""
    ours, theirs = pty.openpty()
    try:
        env = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
        process = subprocess.Popen(command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        os.write(ours, typed.encode())
        received = b"".join(_read_all(ours))
        return process.wait(20), received.decode()
    finally:
        os.close(ours)


def _read_all(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:
            return
        if not read:
            return
        yield read
