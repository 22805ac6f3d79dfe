"""``belay worker``."""

import asyncio
import logging
import os
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from belay_core.cli import options
from belay_core.cli.database import open_database
from belay_core.cli.error_report import DONE
from belay_core.cli.output import write_json, write_line
from belay_core.cli.visible_text import visible
from belay_core.clock import SystemClock
from belay_core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from belay_core.records.attempt import JsonValue
    from belay_core.workflows.definition import Definition

_STEP_THREADS: Final = "belay-step"
_MOST_GRACE: Final = 86_400.0
_IDLE_ENDS_WITHIN: Final = 1_000.0


@click.command()
@click.option("--concurrency", type=int, default=100, show_default=True, help="At most so many runs at a time.")
@click.option(
    "--grace", type=float, default=30.0, show_default=True, metavar="SECONDS", help="How long running steps may end."
)
@options.app
@options.database
@options.as_json
def worker(*, concurrency: int, grace: float, app: str | None, database: str | None, as_json: bool) -> int:
    """Execute the runs of an app until SIGTERM or Ctrl-C.

    Then it takes no further run, lets running steps end within the grace, and releases its runs to other workers.
    With --json it writes one JSON object a line, when it is ready and when it has left.
    """
    from belay_core.cli.app import find_app

    if not 0 <= grace <= _MOST_GRACE:
        raise InvalidInput("grace", f"must be from 0 to {_MOST_GRACE:.0f} seconds")
    definitions = find_app(app)
    _log_visibly()
    asyncio.run(_work(definitions, database, concurrency, timedelta(seconds=grace), as_json=as_json))
    _report_left(as_json=as_json)
    return DONE


async def _work(
    definitions: "Mapping[str, Definition[Any, Any]]",
    database: str | None,
    concurrency: int,
    grace: timedelta,
    *,
    as_json: bool,
) -> None:
    from belay_core.gc_tuning import tune_gc
    from belay_core.worker import Worker

    async with open_database(database, makes_file=True) as stores:
        working = Worker(stores, definitions.values(), concurrency=concurrency, grace=grace)
        names = sorted(definitions)
        line = f"worker {os.getpid()} is ready for {', '.join(names)}"
        facts: dict[str, JsonValue] = {"pid": os.getpid(), "workflows": [*names], "concurrency": concurrency}
        tune_gc()
        await working.run(ready=lambda: _report("ready", line, facts, as_json=as_json))


def _report(event: str, line: str, facts: "dict[str, JsonValue]", *, as_json: bool) -> None:
    if as_json:
        write_json({"event": event, **facts})
    else:
        write_line(line)


def _report_left(*, as_json: bool) -> None:
    """Print that the worker has left; exit the process here if steps are still running in threads."""
    clock = SystemClock()
    until = clock.elapsed() + _IDLE_ENDS_WITHIN
    for thread in _step_threads():
        # An idle thread ends by itself, now that its pool is shut down.
        thread.join(max(0.0, until - clock.elapsed()) / 1000)
    running = len(_step_threads())
    line = f"worker {os.getpid()} has left" + (f"; steps still running in threads: {running}" if running else "")
    _report("left", line, {"pid": os.getpid(), "threads_running": running}, as_json=as_json)
    if running:
        # A thread cannot be stopped, and the interpreter joins all of them at exit: a step that hangs would keep the
        # process for ever, after its grace and with its runs released. So the process exits without joining them;
        # buffers are flushed first, as os._exit flushes nothing.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(DONE)


def _step_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(_STEP_THREADS)]


def _log_visibly() -> None:
    """Log warnings to the standard error, one event a line, unless the app has set up logging of its own."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


class _Visible(logging.Formatter):
    """Escapes control characters: messages and tracebacks may hold stored text, which must not fake a log event."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the library's name)
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  (the library's name)
        return "\n".join(f"| {visible(line)}" for line in super().formatException(ei).splitlines())
