"""Opening stores by URL; the entry point ``jsonl`` of the group ``belay.drivers`` names this."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from belay_core.clock import Clock, SystemClock
from belay_core.errors import InvalidInput
from belay_core.ids import IdSource, Uuid7Ids
from belay_core.stores import Stores
from belay_core.stores.absent import contract_attempts, contract_runs
from belay_jsonl.attempt_store import JsonlAttemptStore
from belay_jsonl.book import Book
from belay_jsonl.run_store import JsonlRunStore

_PREFIX = "jsonl:///"


@asynccontextmanager
async def open_jsonl(url: str, *, clock: Clock | None = None, ids: IdSource | None = None) -> AsyncGenerator[Stores]:
    """The stores over a file: ``jsonl:///runs.jsonl`` beside the program, ``jsonl:////var/runs.jsonl`` anywhere.

    A file that is not there is made. Raises ``InvalidInput`` for another URL, ``DatabaseError`` for a file that cannot
    be read, ``SchemaMismatch`` for one that is no such log.
    """
    if not url.startswith(_PREFIX) or url == _PREFIX or "?" in url:
        raise InvalidInput("url", "must be jsonl:/// and the path of a file")
    clock = clock or SystemClock()
    book = Book()
    try:
        await book.open(Path(url.removeprefix(_PREFIX)))
        yield Stores(
            runs=contract_runs(JsonlRunStore(book, clock)),
            attempts=contract_attempts(JsonlAttemptStore(book)),
            clock=clock,
            ids=ids or Uuid7Ids(),
        )
    finally:
        await book.close()
