"""The file and its tables, worked on by one thread, so that a disk that is slow stops no event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from belay_core.errors import AttemptStoreError, DatabaseError, RunStoreError
from belay_jsonl.log import Damaged, Log
from belay_jsonl.tables import Tables, Transaction

T = TypeVar("T")


class Book:
    """One opening of one file. Made by ``opened``, used by one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "belay-jsonl")
        self._tables = Tables()
        self._log: Log | None = None

    async def open(self, path: Path) -> None:
        """Read the file; raises ``DatabaseError`` where that fails, ``SchemaMismatch`` where it is another kind."""

        def opening() -> None:
            self._log = Log(path, self._tables.apply)

        try:
            await self._in_thread(opening)
        except OSError:
            raise DatabaseError("io") from None
        except Damaged:
            raise DatabaseError("unknown") from None

    async def close(self) -> None:
        """Let calls under way end, and close the file."""
        if self._log is not None:
            await self._in_thread(self._log.close)
        self._thread.shutdown(wait=False)

    async def transact(self, decide: Callable[[Transaction], T]) -> T:
        """The answer of ``decide`` once what it changed has reached the disk.

        Raises what ``decide`` raises, which changes nothing; ``OSError``, ``Damaged``.
        """
        return await self._in_thread(lambda: self._transact(decide))

    def _transact(self, decide: Callable[[Transaction], T]) -> T:
        if self._log is None:
            raise OSError("not open")
        with self._log.transaction() as add:
            transaction = Transaction(self._tables)
            answer = decide(transaction)
            if transaction.entry:
                add(transaction.entry)
            return answer

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do work in the thread; who is cancelled meanwhile leaves when it has been done."""
        done = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait([done])
            done.exception()
            raise


async def for_runs(book: Book, method: str, decide: Callable[[Transaction], T]) -> T:
    """A transaction of the run store; a failure is its kind of error, without a word of the system's."""
    try:
        return await book.transact(decide)
    except (OSError, Damaged) as failure:
        code, cause = _told(failure)
    detail = {"category": cause.code, "cause": cause}
    raise RunStoreError(code, method, "database operation failed", detail)


async def for_attempts(book: Book, method: str, decide: Callable[[Transaction], T]) -> T:
    """A transaction of the attempt store."""
    try:
        return await book.transact(decide)
    except (OSError, Damaged) as failure:
        code, cause = _told(failure)
    detail = {"category": cause.code, "reason": cause.code, "cause": cause}
    raise AttemptStoreError(code, method, "attempt persistence failed", detail)


def _told(failure: OSError | Damaged) -> tuple[str, DatabaseError]:
    damaged = isinstance(failure, Damaged)
    return ("decode_failed", DatabaseError("unknown")) if damaged else ("persistence_failed", DatabaseError("io"))
